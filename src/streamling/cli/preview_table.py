"""The tables of a preview: columns side by side if they fit the width, else one line per column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from streamling.cli.quantities import number_of
from streamling.cli.terminal import Fragment, cells, cut, printable
from streamling.engine.preview import End, NodePreview
from streamling.plan.types import Field
from streamling.spec.mask import mask_text

_Line = list[Fragment]
_NODE, _KIND, _NAME, _TYPE, _NULL, _PROBLEM = "bold", "dim", "cyan", "dim", "dim", "yellow"
_GAP, _INDENT = 2, 2
# A value longer than this is shortened, if there are other columns.
_WIDEST = 40
# Below this width a shortened value says nothing.
_NARROWEST = 8
# Of a row that is shown as a column.
_SAMPLE = 24
# One line per column: more of them hide the other nodes.
_MOST_COLUMNS = 100
# Characters that a cell may need for each column of the terminal: marks and joiners have no width.
_PER_CELL = 4


def preview_lines(nodes: Sequence[NodePreview], end: End, width: int) -> Iterator[_Line]:
    """Everything that a preview prints on standard output."""
    for node in nodes:
        yield from _node_lines(node, width)
        yield [("", "")]
    shown = sum(1 for node in nodes if node.columns is not None)
    if shown:
        left = len(nodes) - shown
        more = f", {left} left out" if left else ""
        yield [(f"{number_of(shown, 'node')}{more}; {end.value}. No sink was contacted, no position stored.", _KIND)]


def _node_lines(node: NodePreview, width: int) -> Iterator[_Line]:
    yield [(printable(node.spec.name), _NODE), (f"  {node.spec.type} {node.spec.role.value}{_counts(node)}", _KIND)]
    if node.columns is not None:
        columns = list(node.columns)
        rows = [[_cell(row.get(column.name), width) for column in columns] for row in node.rows]
        widths = _widths(columns, rows, width - _INDENT)
        yield from _rows_lines(columns, rows, widths) if widths else _columns_lines(columns, rows, width - _INDENT)
    if node.problem is not None:
        # The whole error, with its place, is printed after the tables.
        first_line, *_ = [*node.problem.splitlines(), ""]
        yield [(_shorten(f"  {printable(mask_text(first_line))}", width), _PROBLEM)]
    elif node.columns is not None and not node.rows:
        yield [("  no rows", _KIND)]
    if node.note is not None:
        yield [(_shorten(f"  {printable(node.note)}", width), _KIND)]


def _counts(node: NodePreview) -> str:
    parts = [f", {len(node.rows)} of {number_of(node.count, 'row')}"] if node.count > len(node.rows) else []
    parts += [f", {number_of(node.rejected, 'row')} rejected"] if node.rejected else []
    return "".join(parts)


def _cell(value: object, width: int) -> Fragment:
    """Text as it is, nested values and numbers as JSON, on one line. Not longer than can be shown."""
    if value is None:
        return "null", _NULL
    text = value if isinstance(value, str) and value != "null" else json.dumps(value, ensure_ascii=False)
    most = width * _PER_CELL
    shown = printable(text[:most].replace("\r\n", " ").replace("\n", " "))
    return (f"{_shorten(shown, width)}…" if len(text) > most else shown), ""


def _widths(columns: Sequence[Field], rows: Sequence[Sequence[Fragment]], room: int) -> list[int] | None:
    """The widths of columns side by side; None if they do not fit."""
    heads = [max(cells(_name(column)), cells(_type(column))) for column in columns]
    gaps = _GAP * (len(heads) - 1)
    if sum(heads) + gaps > room:
        return None
    values = [max((cells(row[place][0]) for row in rows), default=0) for place in range(len(columns))]
    widest = room if len(columns) == 1 else _WIDEST
    widths = [max(head, min(value, widest)) for head, value in zip(heads, values, strict=True)]
    excess = sum(widths) + gaps - room
    # The widest columns give way first.
    while excess > 0:
        place = max(range(len(widths)), key=lambda n: widths[n] - max(heads[n], _NARROWEST))
        if widths[place] <= max(heads[place], _NARROWEST):
            return None
        widths[place] -= 1
        excess -= 1
    return widths


def _name(column: Field) -> str:
    return printable(column.name)


def _type(column: Field) -> str:
    return _shorten(printable(str(column.type)), _WIDEST)


def _rows_lines(columns: Sequence[Field], rows: Sequence[Sequence[Fragment]], widths: Sequence[int]) -> Iterator[_Line]:
    yield _line([(_name(column), _NAME) for column in columns], widths)
    yield _line([(_type(column), _TYPE) for column in columns], widths)
    for row in rows:
        yield _line(row, widths)


def _columns_lines(columns: Sequence[Field], rows: Sequence[Sequence[Fragment]], room: int) -> Iterator[_Line]:
    """One line per column: its name, its type, and its values in as many rows as fit."""
    shown = columns[:_MOST_COLUMNS]
    names = min(max(cells(_name(column)) for column in shown), max(room // 2, _NARROWEST))
    types = min(max(cells(_type(column)) for column in shown), _SAMPLE)
    left = room - names - types - _GAP
    samples = max(1, min(len(rows), left // (_SAMPLE + _GAP)))
    sample = max(_NARROWEST, left // samples - _GAP)
    for place, column in enumerate(shown):
        fragments = [(_name(column), _NAME), (_type(column), _TYPE), *(row[place] for row in rows[:samples])]
        yield _line(fragments, [names, types, *[sample] * (len(fragments) - 2)])
    if len(columns) > len(shown):
        more = number_of(len(columns) - len(shown), "more column")
        yield [(f"  and {more}, which --format json shows", _KIND)]


def _line(fragments: Sequence[Fragment], widths: Sequence[int]) -> _Line:
    line: _Line = [(" " * _INDENT, "")]
    for number, ((text, style), width) in enumerate(zip(fragments, widths, strict=True)):
        shown = _shorten(text, width)
        line.append((shown, style))
        if number < len(widths) - 1:
            line.append((" " * (width - cells(shown) + _GAP), ""))
    return line


def _shorten(text: str, width: int) -> str:
    return text if cells(text) <= width else f"{cut(text, width - 1)}…"
