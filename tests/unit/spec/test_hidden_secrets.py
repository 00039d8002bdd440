"""Whatever a password consists of, and wherever and however it is written: no message shows a part of it."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from streamling.cli.failure import chain, render
from streamling.cli.validate import problem_entry
from streamling.clients.http import HttpServer
from streamling.engine.preparation import check
from streamling.errors import SCHEMA_NOT_FOUND, InvalidPipeline, StreamlingError
from streamling.sources.file.columns import columns_of
from streamling.spec.mask import MASK, mask_text, mask_url, remember
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings, load_settings

# Characters that no message of ours has next to each other.
RARE = "QXZ7"
PIECES = st.sampled_from(["QX7Z", "ZQ7", "X7", *string.punctuation, " ", "é", "{{", ": ", " #", "//", "%40"])
PASSWORDS = st.lists(PIECES, min_size=1, max_size=6).map(lambda pieces: "QX7Z" + "".join(pieces) + "7ZXQ")


def secret_keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all secret settings that a file can hold."""
    for name, field in model.model_fields.items():
        key = (*path, field.alias or name)
        kinds = {field.annotation, *get_args(field.annotation)}
        if Secret in kinds:
            yield (*key, "crm") if field.annotation == dict[str, Secret] else key
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel) and key != ("runtime",):
                yield from secret_keys(kind, (*key, "p") if get_args(field.annotation) else key)


KEYS = [
    *secret_keys(Settings),
    ("plugin", "queue", "any_option"),
    ("plugin", "queue", "password"),
    ("spark", "hadoop.fs.s3a.secret.key"),
]


# One of each shape.
SHAPES = [key for key in KEYS if key[0] in ("http_secret_value", "postgres_sink_connections", "postgres_sink", "spark")]
SHAPES += [("state_backend", "postgres", "password"), ("plugin", "queue", "any_option")]


def test_all_secret_settings_are_covered() -> None:
    assert ("postgres_sink", "pass") in KEYS
    assert ("postgres_sink_connections", "p", "pass") in KEYS
    assert ("state_backend", "postgres", "password") in KEYS
    assert ("http_secret_value", "crm") in KEYS
    assert len(KEYS) >= 15


def single(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def double(text: str) -> str:
    return json.dumps(text)


# How a value may be written after `key:`; the placeholder <i> is the indentation of the key.
VALUES = {
    "plain": lambda s: f" {s}",
    "without a space": lambda s: s,
    "single quotes": lambda s: f" {single(s)}",
    "double quotes": lambda s: f" {double(s)}",
    "an open quote": lambda s: f' "{s}',
    "an open single quote": lambda s: f" '{s}",
    "text after the quote": lambda s: f" 'a' {s}",
    "several lines": lambda s: f' "{s[:5]}\n<i>  {s[5:]}"',
    "several lines, not indented": lambda s: f' "a\n<i>{s}\n',
    "the next line": lambda s: f"\n<i>  {s}",
    "the next line, not indented": lambda s: f"\n<i>{s}",
    "an item": lambda s: f"\n<i>- {s}",
    "an item below": lambda s: f"\n<i>  - {double(s)}",
    "a block": lambda s: f" |\n<i>  {s}",
    "a block that begins too early": lambda s: f" |{s}",
    "a folded block": lambda s: f" >-\n<i>  {s}\n<i>  {s}",
    "a block that is not indented": lambda s: f" |\n<i>{s}",
    "an alias": lambda s: f" *{s}",
    "a tag": lambda s: f" !{s} x",
    "a core tag": lambda s: f" !!{s} x",
    "an anchor": lambda s: f" &{s} x",
    "an unknown escape": lambda s: f' "\\{s}"',
    "a set": lambda s: f" {{{s}}}",
    "a quoted set": lambda s: f" {{{double(s)}}}",
    "a map": lambda s: f" {{{double(s)}: 1, {double(s)}: 2}}",
    "a map below": lambda s: f"\n<i>  {double(s)}: 1",
    "a value of a map": lambda s: f" {{a: {double(s)}}}",
    "a list": lambda s: f" [{double(s)}]",
    "an open list": lambda s: f" [{s}",
    "an open map": lambda s: f" {{a: {s}",
    "a second colon": lambda s: f" {s}: x",
    "a comment": lambda s: f" # {s}",
}  # fmt: skip


def settings_file(key: tuple[str, ...], form: str, password: str, after: str) -> str:
    text = ""
    for depth, part in enumerate(key[:-1]):
        text += f"{'  ' * depth}{part}:\n"
    indent = "  " * (len(key) - 1)
    return (
        f"{text}{indent}{key[-1]}:{VALUES[form](password)}".replace("<i>", indent) + f"\n{after.replace('<i>', indent)}"
    )


AFTER = [
    "",
    "<i>host: [\n",
    "<i>port: abc\n",
    "job_mode: maybe\n",
    "job_mode: [\n",
    "<i>}\n",
    "x\n",
    "<i>  y: 1\n",
    "\tz: 1\n",
]


def report(error: BaseException) -> str:
    """Everything that the command line can show of an error."""
    problems: list[Any] = list(error.problems) if isinstance(error, InvalidPipeline) else [error]
    texts = [render(error, with_trace=True), chain(error), *(json.dumps(problem_entry("error", p)) for p in problems)]
    texts += [json.dumps(problem_entry("error", p), ensure_ascii=False) for p in problems]
    return "\n".join([*texts, *(chain(p) for p in problems)])


def outcome_of_settings(directory: Path, text: str, environ: dict[str, str]) -> str:
    (directory / "config.yaml").write_text(text)
    try:
        loaded = load_settings(config=str(directory / "config.yaml"), environ=environ, cwd=directory)
    except StreamlingError as error:
        return report(error)
    # Spark's settings may have any name: a password that is written as a map becomes one.
    named = any(char in name for char in RARE for name in loaded.settings.spark)
    return "\n".join([*map(mask_text, loaded.warnings), "" if named else repr(loaded.settings)])


def assert_hidden(password: str, shown: str) -> None:
    parts = {text[i : i + 4] for text in (password, quote(password), repr(password)) for i in range(len(text) - 3)}
    leaks = [part for part in parts if sum(char in RARE for char in part) >= 2 and part in shown]
    assert leaks == [], shown


EXAMPLES = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True
)


@EXAMPLES
@given(st.sampled_from(KEYS), st.sampled_from(list(VALUES)), PASSWORDS, st.sampled_from(AFTER))
def test_no_form_of_a_secret_setting_is_shown(
    tmp_path: Path, key: tuple[str, ...], form: str, password: str, after: str
) -> None:
    if not _is_key(form, password):
        assert_hidden(password, outcome_of_settings(tmp_path, settings_file(key, form, password, after), {}))


def _is_key(form: str, password: str) -> bool:
    """A text with a colon, indented like the keys, is one of them."""
    return "not indented" in form and ":" in password


@pytest.mark.parametrize("form", VALUES)
@pytest.mark.parametrize("after", ["", "job_mode: [\n"])
def test_each_form_is_hidden(tmp_path: Path, form: str, after: str) -> None:
    for password in ("QX7ZQX7Z", "QX:7Z/Q X@7Z", "QX7Z: QX7Z", "QX7Z}QX7Z"):
        for key in SHAPES if not _is_key(form, password) else ():
            text = settings_file(key, form, password, after)
            assert_hidden(password, outcome_of_settings(tmp_path, text, {}))


@pytest.mark.parametrize(
    "text",
    [
        "postgres_sink_connections:\n  p: QX7ZQX7Z\n",
        "postgres_sink_connections: {p: QX7ZQX7Z}\n",
        "postgres_sink_connections: QX7ZQX7Z\n",
        "postgres_sink: QX7ZQX7Z\n",
        "postgres_sink: [QX7ZQX7Z]\n",
        "postgres_sink:\n- QX7ZQX7Z\n",
        "plugin: {queue: QX7ZQX7Z}\n",
        "plugin: QX7ZQX7Z\n",
        "http_secret_value: QX7ZQX7Z\n",
        "http_secret_value: [QX7ZQX7Z]\n",
        "http_secret_value: {crm: {a: {b: [QX7ZQX7Z]}}}\n",
        "postgres_sink:\n  ? pass\n  : QX7ZQX7Z: [\n",
        "postgres_sink:\n  pass:\n  QX7ZQX7Z\n  host: x\n",
        "postgres_sink:\n  password: QX7ZQX7Z\n  port: abc\n",
        "QX7ZQX7Z\n",
        "[QX7ZQX7Z]\n",
        "spark: {hadoop.fs.s3a.secret.key: {QX7ZQX7Z: [1]}, x: [}\n",
    ],
)
def test_a_secret_in_the_place_of_something_else_is_not_shown(tmp_path: Path, text: str) -> None:
    assert_hidden("QX7ZQX7Z", outcome_of_settings(tmp_path, text, {}))


URLS = [
    "http://user:{}@host",
    "http://user:{}@host:80/path?x=1",
    "https://:{}@host",
    "http:/u:{}@h",
    "user:{}@host:9092",
]
URLS += ["http://host/p?x=1&token={}", "s3://AKIA:{}@bucket/path/*.csv", "postgresql://me@corp.com:{}@h/db"]


@EXAMPLES
@given(st.sampled_from(URLS), PASSWORDS)
def test_a_password_in_a_url_is_masked(url: str, password: str) -> None:
    masked = mask_url(url.format(password))
    assert_hidden(password, masked)
    assert MASK in masked


@EXAMPLES
@given(
    st.sampled_from(["schema_registry_url", "url", "brokers"]),
    st.sampled_from(URLS),
    PASSWORDS,
    st.sampled_from([str, single, double]),
    st.sampled_from(AFTER),
)
def test_a_url_in_the_settings_is_not_shown(
    tmp_path: Path, name: str, url: str, password: str, written: Any, after: str
) -> None:
    block = "clickhouse_sink" if name == "url" else "kafka_source"
    text = f"{block}:\n  {name}: {written(url.format(password))}\n{after.replace('<i>', '  ')}"
    shown = outcome_of_settings(tmp_path, text, {})
    if shown.startswith("Streamling Error"):
        assert_hidden(password, shown)


PIPELINE = """\
sources:
  rows: {{type: generator, rows: 1, primary_key: id}}
  files:
    type: file
    format: csv
    path: {path}
    schema: {{id: int64}}
sinks:
  hook:
    type: webhook
    from: rows
    url: {url}
    headers:
      Authorization:{header}
  none: {{type: blackhole, from: files{after}}}
"""


@EXAMPLES
@given(st.sampled_from(URLS), st.sampled_from(list(VALUES)), PASSWORDS, st.sampled_from(["", ", x: 1", ", x: ["]))
@example("http://user:{}@host", "several lines, not indented", 'QX7Z""7ZXQ', "")
def test_a_secret_in_a_pipeline_is_not_shown(tmp_path: Path, url: str, form: str, password: str, after: str) -> None:
    if _is_key(form, password):
        return
    header = VALUES[form](password).replace("<i>", "      ")
    address = double(url.format(password))
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(path=address, url=address, header=header, after=after))
    try:
        plan = check(file, Settings(), probe=False)
    except StreamlingError as error:
        assert_hidden(password, report(error))
    else:
        assert_hidden(password, repr(plan.cautions))


@settings(EXAMPLES, max_examples=25)  # each makes a TLS context
@given(st.sampled_from(URLS[:5]), PASSWORDS)
def test_the_http_client_does_not_show_its_address(url: str, password: str) -> None:
    # A port that nothing listens on.
    address = url.format(password).replace("@host:80", "@127.0.0.1:9").replace("@host", "@127.0.0.1:9")
    server = HttpServer(address, name="the server", condition=SCHEMA_NOT_FOUND, timeout=0.2)
    with pytest.raises(StreamlingError) as caught:
        server.request("GET", "/x")
    server.close()
    assert_hidden(password, report(caught.value))


@pytest.mark.parametrize("password", ["QX/7ZQX7Z", "QX@7ZQX7Z", "QX7Z 7ZXQ", "QX7Z#7ZXQ", "QX7Z%7ZXQ", "QX7Z:7ZXQ"])
def test_the_path_of_files_is_shown_without_its_key(password: str) -> None:
    # Without a bucket no request is made.
    with pytest.raises(StreamlingError) as caught:
        columns_of(f"s3://AKIAX:{password}@/path/*.csv", "csv")
    assert_hidden(password, report(caught.value))


def test_what_a_library_says_about_a_known_secret_is_masked() -> None:
    Secret("QX7Z-7ZXQ é'\"\n2")
    for text in ("QX7Z-7ZXQ é'\"\n2", repr("QX7Z-7ZXQ é'\"\n2"), json.dumps("QX7Z-7ZXQ é'\"\n2")):
        assert_hidden("QX7Z-7ZXQ é'\"\n2", mask_text(f"invalid value {text} for 'sasl.password'"))
    assert (
        mask_text("connection to host=h password=QX7Z1 user=u failed")
        == "connection to host=h password=***** user=u failed"
    )


def test_ordinary_words_are_never_masked_as_secrets() -> None:
    for word in ("postgres", "password", "12345678", "graph-node"):
        Secret(word)
    text = "password authentication failed for user graph-node at postgres:5432, offset 12345678"
    assert mask_text(text) == text


def test_a_media_type_is_no_secret_although_it_is_the_value_of_a_header() -> None:
    remember("application/vnd.acme+json; charset=utf-8")
    assert "like application/vnd.acme+json; charset=utf-8" in mask_text("like application/vnd.acme+json; charset=utf-8")
    remember("application/Se-Cret_9")
    assert "Se-Cret_9" not in mask_text("x application/Se-Cret_9")
