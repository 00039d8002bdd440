"""How the rows of a preview are laid out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from streamling.cli.preview_table import preview_lines
from streamling.cli.terminal import cells
from streamling.engine.preview import End, NodePreview
from streamling.errors import Where
from streamling.plan.types import INT64, STRING, Field, Schema, struct_of
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import NodeOptions
from streamling.spec.yaml import MapNode

PLACE = Where("p.yaml", 1, 1)
SPEC = NodeSpec(
    Role.SOURCE, "orders", "orders", "kafka", NodeOptions.model_construct(type="kafka"), PLACE, MapNode(PLACE, ())
)


def text(columns: Sequence[Field], rows: Sequence[Mapping[str, Any]], width: int = 80, **more: Any) -> list[str]:
    node = NodePreview(SPEC, Schema(tuple(columns)), rows, more.pop("count", len(rows)), **more)
    lines = preview_lines([node], End.ROWS, width)
    return ["".join(part for part, _ in line).rstrip() for line in lines]


def strings(*names: str) -> list[Field]:
    return [Field(name, STRING) for name in names]


def test_columns_are_side_by_side_with_their_types() -> None:
    rows = [{"id": 1, "name": "a\nb\x1b"}, {"id": None, "name": "日本"}, {"id": 3, "name": ["x", {"y": 1}]}]
    assert text([Field("id", INT64), Field("name", STRING)], rows, count=1234, rejected=2) == [
        "orders  kafka source, 3 of 1,234 rows, 2 rows rejected",
        "  id     name",
        "  int64  string",
        "  1      a b\N{REPLACEMENT CHARACTER}",
        "  null   日本",
        '  3      ["x", {"y": 1}]',
        "",
        "1 node; every node has its rows. No sink was contacted, no position stored.",
    ]


def test_long_values_are_shortened_to_the_width() -> None:
    rows = [{"id": "1", "note": "日" * 300, "other": "y" * 300}]
    for width in (40, 60, 80, 200):
        lines = text(strings("id", "note", "other"), rows, width)
        assert max(cells(line) for line in lines[:-1]) <= width
        assert "…" in lines[3]


def test_many_columns_are_one_below_the_other() -> None:
    names = [f"column_{number}" for number in range(30)]
    rows = [{name: f"{name} {row}" for name in names} for row in range(5)]
    lines = text(strings(*names), rows)
    assert lines[1].split() == ["column_0", "string", "column_0", "0", "column_0", "1"]
    assert len(lines) == 30 + 3
    assert max(cells(line) for line in lines) <= 80


def test_names_and_types_cannot_send_codes_to_the_terminal() -> None:
    inner = struct_of(Field("a\x1b[31m", STRING))
    for columns in ([Field("n\x9b31m", inner)], [Field(f"n{n}\x1b]0;x\x07", inner) for n in range(30)]):
        lines = text(columns, [{c.name: {"a\x1b[31m": "\x1b[2J\x9b"} for c in columns}])
        assert all(line.isprintable() for line in lines), lines


def test_a_null_is_not_the_text_null() -> None:
    lines = text(strings("a"), [{"a": None}, {"a": "null"}, {"a": ""}])
    assert lines[3:6] == ["  null", '  "null"', ""]


def test_a_long_value_costs_no_time() -> None:
    columns, rows = strings("id", "note"), [{"id": str(n), "note": "é" * 10_000_000} for n in range(10)]
    began = time.process_time()
    lines = text(columns, rows)
    assert time.process_time() - began < 1
    assert max(map(cells, lines[:-2])) <= 80
    assert lines[3].endswith("é…")


def test_of_very_many_columns_the_first_are_shown() -> None:
    names = [f"column_{number}" for number in range(2000)]
    began = time.process_time()
    lines = text(strings(*names), [dict.fromkeys(names, "x" * 50) for _ in range(10)])
    assert time.process_time() - began < 2
    assert len(lines) == 1 + 100 + 1 + 2
    assert lines[101] == "  and 1,900 more columns, which --format json shows"


def test_a_long_name_leaves_room_for_values() -> None:
    lines = text(strings("n" * 300, "m"), [{"n" * 300: "value", "m": "x"}])
    assert max(map(cells, lines)) <= 80
    assert lines[1].endswith("string  value")


def test_marks_have_no_width() -> None:
    lines = text(strings("a", "b"), [{"a": "❤\N{VARIATION SELECTOR-16}", "b": "x"}, {"a": "กั", "b": "x"}])
    assert lines[3] == "  ❤\N{VARIATION SELECTOR-16}       x"
    assert lines[4] == "  กั       x"


def test_a_node_without_rows_or_with_a_problem_says_so() -> None:
    assert text(strings("a"), [])[3] == "  no rows"
    assert text(strings("a"), [], problem="it failed\nbadly")[3] == "  it failed"
    node = NodePreview(SPEC, None, problem="x" * 200)
    lines = ["".join(part for part, _ in line) for line in preview_lines([node], End.FAILED, 40)]
    assert lines == ["orders  kafka source", "  " + "x" * 37 + "…", ""]
    assert text(strings("a"), [], problem="", note="it is empty")[3:5] == ["", "  it is empty"]
