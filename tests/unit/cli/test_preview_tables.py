"""How the rows of a preview are laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamling.cli.preview_table import preview_lines
from streamling.cli.terminal import cells
from streamling.engine.preview import End, NodePreview
from streamling.errors import Where
from streamling.plan.types import INT64, STRING, Field, Schema
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


def test_a_node_without_rows_or_with_a_problem_says_so() -> None:
    assert text(strings("a"), [])[3] == "  no rows"
    assert text(strings("a"), [], problem="it failed\nbadly")[3] == "  it failed"
    node = NodePreview(SPEC, None, problem="x" * 200)
    lines = ["".join(part for part, _ in line) for line in preview_lines([node], End.FAILED, 40)]
    assert lines == ["orders  kafka source", "  " + "x" * 37 + "…", ""]
