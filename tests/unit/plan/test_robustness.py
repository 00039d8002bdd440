"""Whatever a pipeline file contains, the check ends soon, with a plan or with our own errors."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.engine.preparation import check
from streamling.errors import InvalidPipeline, StreamlingError, UserError
from streamling.spec.settings import Settings, load_settings

NODES = 500
SOURCE = "sources:\n  n0: {type: generator, primary_key: id, rows: 1}\n"
SINK = "sinks:\n  out: {type: blackhole, from: n0}\n"


def outcome(directory: Path, content: str | bytes) -> list[str]:
    """The codes of the problems, or `ok` and the number of nodes."""
    file = directory / "pipeline.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        return [f"ok {len(check(file, Settings(), probe=False).nodes)}"]
    except InvalidPipeline as error:
        assert all(p.where is not None for p in error.problems)
        return [p.code for p in error.problems]
    except UserError as error:
        return [error.code]


def sql(name: str, text: str) -> str:
    return f"  {name}: {{type: sql, primary_key: id, sql: '{text}'}}\n"


def a_chain() -> str:
    steps = "".join(sql(f"n{i}", f"SELECT id, id + {i} AS x FROM n{i - 1}") for i in range(1, NODES - 1))
    return SOURCE + "transforms:\n" + steps + f"sinks:\n  out: {{type: blackhole, from: n{NODES - 2}}}\n"


def a_fan() -> str:
    half = NODES // 2
    steps = "".join(sql(f"t{i}", f"SELECT id, id + {i} AS x FROM n0") for i in range(half))
    return (
        SOURCE
        + "transforms:\n"
        + steps
        + "sinks:\n"
        + "".join(f"  s{i}: {{type: blackhole, from: t{i}}}\n" for i in range(half))
    )


def a_circle() -> str:
    steps = "".join(sql(f"c{i}", f"SELECT id FROM c{(i + 1) % NODES}") for i in range(NODES))
    return SOURCE + "transforms:\n" + steps + SINK


@pytest.mark.parametrize(
    ("content", "expected"),
    [(a_chain(), f"ok {NODES}"), (a_fan(), f"ok {NODES + 1}"), (a_circle(), "CYCLE")],
    ids=["chain", "fan", "circle"],
)
def test_500_nodes_take_less_than_3_seconds(tmp_path: Path, content: str, expected: str) -> None:
    began = time.process_time()
    assert outcome(tmp_path, content) == [expected]
    assert time.process_time() - began < 3


def test_a_long_circle_is_named_by_its_first_nodes(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(a_circle())
    with pytest.raises(InvalidPipeline) as caught:
        check(tmp_path / "p.yaml", Settings(), probe=False)
    assert caught.value.message.endswith(f"and {NODES - 10} more read each other in a cycle")


MEGABYTES = 10_000_000


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# " + "x" * MEGABYTES + "\n" + SOURCE + SINK, "ok 2"),
        (SOURCE + SINK + "description: " + "x" * MEGABYTES + "\n", "ok 2"),
        (
            SOURCE + "sinks:\n" + "".join(f"  sink_{i:06d}: {{type: blackhole, from: n0}}\n" for i in range(250_000)),
            "INVALID_YAML",
        ),
        (
            SOURCE
            + "transforms:\n"
            + "  t:\n    type: sql\n    primary_key: id\n    sql: |\n      SELECT id FROM n0 WHERE id IN (1\n"
            + f"      {', 1' * 100}\n" * (MEGABYTES // 300)
            + "      )\n"
            + "sinks:\n  out: {type: blackhole, from: t}\n",
            "SQL_UNSUPPORTED",
        ),
    ],
    ids=["one comment", "one text", "many nodes", "one query"],
)
def test_a_file_of_10_megabytes(tmp_path: Path, content: str, expected: str) -> None:
    assert outcome(tmp_path, content) == [expected]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("sources:\n\tn0: {type: generator}\nsinks: {}\n", "INVALID_YAML"),
        ((SOURCE + SINK).replace(": ", ":\t"), "ok 2"),
        (bytes(range(256)) * 100, "INVALID_YAML"),
        (b"sources: {}\0\nsinks: {}\n", "INVALID_YAML"),
        ("sources: {}\nsinks: {}\n".encode("utf-16"), "INVALID_YAML"),
        (b"\xef\xbb\xbf" + (SOURCE + SINK).encode(), "ok 2"),
        ((SOURCE + SINK).replace("\n", "\r\n"), "ok 2"),
        ("", "INVALID_YAML"),
        ("- a\n- b\n", "INVALID_YAML"),
        ("a: 1\n---\nb: 2\n", "INVALID_YAML"),
        ("a: " + "[" * 5_000 + "]" * 5_000, "INVALID_YAML"),
        ("[" * 100_000, "INVALID_YAML"),
        ("".join(" " * i + "a:\n" for i in range(2_000)), "INVALID_YAML"),
        ("{" * 5_000, "INVALID_YAML"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"{x}: &{x} [{','.join(['*' + y] * 9)}]\n" for y, x in zip("abcdefgh", "bcdefghi", strict=True)),
            "INVALID_YAML",
        ),
        (
            "sources:\n  a: &base {type: generator, primary_key: id}\n  b: *base\n"
            "sinks:\n  o: {type: blackhole, from: a}\n  p: {type: blackhole, from: b}\n",
            "ok 4",
        ),
        ("sources:\n  a: *nobody\nsinks: {}\n", "INVALID_YAML"),
        (
            SOURCE + "transforms:\n" + sql("t", f"SELECT id, {'(' * 3000}1{')' * 3000} AS x FROM n0")
            + "sinks:\n  out: {type: blackhole, from: t}\n",
            "SQL_UNSUPPORTED",
        ),
        (
            SOURCE + "transforms:\n" + sql("t", f"SELECT id, 1{' + 1' * 3000} AS x FROM n0")
            + "sinks:\n  out: {type: blackhole, from: t}\n",
            "ok 3",
        ),
        ('{"sources": {"n": {"type": "generator", "rows": 1}}, "sinks": {"o": {"type": "memory", "from": "n"}}}',
         "ok 2"),
    ],
    ids=[
        "tabs as indentation", "tabs behind colons", "binary", "a null character", "utf-16", "byte order mark",
        "carriage returns", "empty", "a list", "two documents", "nested lists", "brackets that never close",
        "nested maps", "braces that never close", "billion laughs", "anchors", "unknown alias", "nested parentheses",
        "a long sum", "json",
    ],
)  # fmt: skip
def test_odd_files(tmp_path: Path, content: str | bytes, expected: str) -> None:
    assert outcome(tmp_path, content) == [expected]


PIPELINE = """\
sources:
  shop.orders:
    type: generator
    primary_key: id
    rows: 10
    columns:
      id: id
      total: id * 1.5
      note: "case when id % 2 = 0 then 'even' else null end"
transforms:
  big:
    type: sql
    primary_key: id
    telemetry: {event_time: {column: at, unit: seconds}, labels: {team: data}}
    sql: |
      WITH some AS (SELECT id, total AS t, note FROM shop.orders WHERE total > 3)
      SELECT *, upper(note) AS loud, id % 10 AS bucket, t::text || '!' AS text
      FROM some
  both: {type: sql, primary_key: id, sql: SELECT id FROM big UNION ALL SELECT id FROM shop.orders}
sinks:
  out: {type: print, from: big, on_error: dead_letter, dead_letter: {type: file, path: ./letters}}
  gone: {type: blackhole, from: both, batch_size: 10, batch_flush_interval: 1s}
"""
FRAGMENTS = [
    "", " ", "\n", "\n  ", "\t", ":", ": ", "'", '"', "{", "}", "[", "]", "|", ">", "&a ", "*a", "-", "- ", "#", "!",
    "%", "null", "~", "true", "1e9", "-1", ".inf", "type", "sql", "from", "sources", "sinks", "generator", "SELECT ",
    "FROM ", " FROM big", " JOIN x", "(", ")", ",", ";", "--", "/*", "*", "id", "::", "::banana", "_gs_op",
    "unnest(", " OVER ()", "dead_letter", "é", "🚀", "\u2028", "\x85",
]  # fmt: skip


def test_the_pipeline_that_is_mutated_is_valid(tmp_path: Path) -> None:
    assert outcome(tmp_path, PIPELINE) == ["ok 5"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_pipeline_gives_a_plan_or_errors_with_places(tmp_path: Path, data: st.DataObject) -> None:
    text = PIPELINE
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        text = text[:start] + data.draw(st.sampled_from(FRAGMENTS) | st.text(max_size=3)) + text[start + length :]
    with suppress(UnicodeEncodeError):  # a lone surrogate is no text that a file could hold
        assert outcome(tmp_path, text)


VALUES = st.sampled_from(["", " ", "0", "-1", "1", "yes", "TRUE", "InMemory", "Sqlite", "1s", "5 m", "[]", "{}", "a,b"])
NAMES = st.sampled_from(
    [
        "APPLICATION_ID", "JOB_MODE", "STATE_BACKEND__BACKEND_TYPE", "STATE_BACKEND__SQLITE__DATABASE_PATH",
        "KAFKA_SOURCE__BROKERS", "KAFKA_SOURCE__SECURITY_PROTOCOL", "POSTGRES_SINK__PORT", "POSTGRES_SINK__BATCH_SIZE",
        "POSTGRES_SINK_CONNECTIONS__A__PORT", "PLUGIN__PREPROCESSOR_IDS", "PLUGIN__X__Y", "EPOCH__ROWS",
        "SPARK__MASTER", "CHECKPOINT_INTERVAL_SEC", "RECORD_BATCH_SIZE", "NO_SUCH_KEY", "STATE_BACKEND",
        "LOG_FORMAT", "",
    ]
)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    environ=st.dictionaries(NAMES.map(lambda name: f"STREAMLING__{name}"), VALUES | st.text(max_size=5), max_size=5),
    file=st.one_of(st.none(), st.text(max_size=40), st.dictionaries(NAMES.map(str.lower), VALUES).map(repr)),
)
def test_mutated_settings_load_or_give_an_error_of_ours(
    tmp_path: Path, environ: dict[str, str], file: str | None
) -> None:
    config = tmp_path / "config.yaml"
    config.unlink(missing_ok=True)
    if file is not None:
        config.write_bytes(file.encode(errors="replace"))
    try:
        load_settings(config=None, environ=environ, cwd=tmp_path)
    except StreamlingError as error:
        assert error.code in ("SETTING_INVALID", "CONFIG_FILE")
