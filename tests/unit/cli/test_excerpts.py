"""The line of an error is shown with a caret under the column, and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamling.cli.excerpt import WIDTH, excerpt
from streamling.errors import Where


def excerpt_of(directory: Path, text: str, line: int, column: int) -> tuple[str, str]:
    """The text after the line number, and the character above the caret."""
    (directory / "p.yaml").write_text(text)
    first, caret = excerpt(Where(str(directory / "p.yaml"), line, column))
    position = caret.index("^")
    return first.partition("| ")[2], first[position] if position < len(first) else ""


def test_the_caret_is_under_the_column(tmp_path: Path) -> None:
    assert excerpt_of(tmp_path, "a: 1\n  key: value\n", 2, 8) == ("  key: value", "v")


def test_a_column_after_the_end_of_the_line_is_shown_at_its_end(tmp_path: Path) -> None:
    assert excerpt_of(tmp_path, "key: value\n", 1, 500) == ("key: value", "")


def test_characters_of_two_columns_and_of_none_are_counted_as_they_are_seen(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("名前: x\ne\u0301: y\n")
    wide, caret = excerpt(Where(str(tmp_path / "p.yaml"), 1, 5))
    assert caret.index("^") == wide.index("x") + 2
    combined, caret = excerpt(Where(str(tmp_path / "p.yaml"), 2, 5))
    assert caret.index("^") == combined.index("y") - 1


@pytest.mark.parametrize("column", [1, 60, 500, 900, 1000])
def test_a_long_line_is_cut_around_the_place(tmp_path: Path, column: int) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(1000))
    line, above = excerpt_of(tmp_path, text, 1, column)
    assert len(line) <= WIDTH
    assert above == text[column - 1]


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    line, above = excerpt_of(tmp_path, "a:\t\x1b[31mred\n", 1, 10)
    assert line == "a: \N{REPLACEMENT CHARACTER}[31mred"
    assert above == "e"


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter2",
        "    pass: 'hunter2'",
        "  x: {url: http://h, secret_token: hunter2, other: 1}",
        "headers: {X-Any: hunter2, Accept: hunter2}",
        "  Authorization: Bearer hunter2",
        '  "api_key": "hunter2"',
        "api-key: hunter2, x",
        "url: https://me:hunter2@host/path",
        "- {from: a, headers: {Cookie: hunter2}, batch_size: x}",
        "headers: [Authorization, hunter2]",
        'headers: {X: "a}hunter2"}, foo: 1',
        "url: ftp://host/path?token=hunter2&x=1",
        "http_secret_value: {crm: [hunter2]}",
        'x: "http://me:hunter2@host',
    ],
)
def test_values_that_may_be_secrets_are_masked(tmp_path: Path, line: str) -> None:
    assert "hunter2" not in excerpt_of(tmp_path, line + "\n", 1, 1)[0]


@pytest.mark.parametrize(
    "text",
    [
        "headers: # our keys\n  bad name: hunter2\n",
        '"headers":\n  {X: 1,\n   Y: hunter2}\n',
        "headers:\n  X:\n    deep: hunter2\n",
        "- headers:\n    X: hunter2\n",
        "http_secret_value:\n  crm: hunter2\n",
    ],
)
def test_what_is_below_a_secret_key_is_masked(tmp_path: Path, text: str) -> None:
    last = text.count("\n")
    assert "hunter2" not in excerpt_of(tmp_path, text, last, 3)[0]


def test_masking_moves_nothing(tmp_path: Path) -> None:
    for line in ("headers: {X-Api: abcdefghij}, foo: 1", "url: 'https://me:hunter2@host/path', foo: 1"):
        masked, above = excerpt_of(tmp_path, line + "\n", 1, line.index("foo") + 1)
        assert len(masked) == len(line)
        assert above in "f*"


def test_everything_under_headers_is_masked(tmp_path: Path) -> None:
    text = "s:\n  headers:\n    X-First: 1\n\n    X-Second: hunter2\n  batch_size: hunter3\n"
    assert excerpt_of(tmp_path, text, 5, 5) == ("    X-Second: *******", "X")
    assert "hunter3" in excerpt_of(tmp_path, text, 6, 3)[0]


@pytest.mark.parametrize("line", ["topic: passenger_list", "table: t, path: ./out", "sql: SELECT token_id FROM a"])
def test_other_values_are_shown(tmp_path: Path, line: str) -> None:
    assert excerpt_of(tmp_path, line + "\n", 1, 1)[0] == line


@pytest.mark.parametrize("where", [Where("nowhere.yaml", 1, 1), Where(".", 1, 1), Where("a\0b", 1, 1)])
def test_without_the_file_there_is_no_excerpt(where: Where) -> None:
    assert excerpt(where) == []


def test_a_line_the_file_no_longer_has_gives_no_excerpt(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("one\n")
    assert excerpt(Where(str(tmp_path / "p.yaml"), 7, 1)) == []
