"""The log filter: a level, and levels of single targets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from streamling.cli.logs import LogFilter, start_logging
from streamling.log_context import log_fields


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("streamling.somewhere")
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    ours.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", LogFilter()),
        ("warn", LogFilter(logging.WARNING)),
        (" Debug ", LogFilter(logging.DEBUG)),
        ("info,a.b=debug", LogFilter(logging.INFO, {"a.b": logging.DEBUG})),
        ("a::b=error, warn", LogFilter(logging.WARNING, {"a.b": logging.ERROR})),
        ("loud", LogFilter(wrong=("loud",))),
        ("info,a=loud,=debug", LogFilter(logging.INFO, wrong=("a=loud", "=debug"))),
    ],
)
def test_a_filter_is_a_level_and_pairs(text: str, expected: LogFilter) -> None:
    assert LogFilter.parse(text) == expected


def test_a_target_has_its_own_level(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="text", level="error,streamling.somewhere=debug")
    logging.getLogger("streamling.somewhere").debug("heard")
    logging.getLogger("streamling.elsewhere").info("not heard")
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["heard"]


def test_a_wrong_word_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="text", level="loud")
    assert "'loud' in the log filter is ignored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("debug", ["ours"]),
        ("info", []),
        ("py4j=debug", ["py4j"]),
        ("debug,py4j.clientserver=debug", ["ours", "py4j"]),
    ],
)
def test_noisy_libraries_are_logged_only_if_the_filter_names_them(
    level: str, logged: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(format_="text", level=level)
    logging.getLogger("streamling.elsewhere").debug("ours")
    logging.getLogger("py4j.clientserver").debug("py4j")
    logging.getLogger("pyspark.sql").debug("pyspark")
    logging.getLogger().debug("root")
    logging.getLogger("py4j").setLevel(logging.NOTSET)
    logging.getLogger("py4j.clientserver").setLevel(logging.NOTSET)
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == logged


def test_values_in_messages_cannot_send_codes_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="text", level="info")
    logging.getLogger("streamling.somewhere").warning("row 1: '\x1b[31m'\nrow 2: '\x9b'")
    first, second = capsys.readouterr().err.splitlines()
    assert (first[-5:], second) == ("[31m'", "row 2: '\N{REPLACEMENT CHARACTER}'")
    assert first.isprintable()


def test_json_lines_carry_the_node_and_the_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="json", level="info")
    log = logging.getLogger("streamling.somewhere")
    with log_fields(epoch=7), log_fields(node="orders"):
        log.info("inside")
    log.info("outside")
    inside, outside = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (inside["epoch"], inside["node"]) == (7, "orders")
    assert not {"epoch", "node"} & outside.keys()
