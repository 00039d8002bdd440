"""The table of a run: a header, a bar, a row per node, a footer. Text and styles only, without a terminal.

No line is longer than the width. Wider windows show more columns; long names are shortened in the middle, because
names of one pipeline often differ at their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamling.cli.quantities import BYTES, clock, count, number_of, quantity, speed
from streamling.cli.terminal import Fragment, cells, cut, printable
from streamling.engine.protocol.progress import NodeProgress, Phase, Snapshot
from streamling.spec.pipeline import Role

Line = tuple[Fragment, ...]

_WORD_STYLES = {
    "starting Spark": "bold yellow",
    "running": "bold green",
    "stopping": "bold yellow",
    "stopped": "bold yellow",
    "done": "bold green",
    "failed": "bold red",
}
_GAP = 2
_LEAST_NAME, _MOST_NAME = 16, 44
_LEAST_NUMBER = 9
# As wide as a page of text, even if the rows are shorter.
_PAGE = 79
# From this width on there is space for the column `where`.
_WIDE = 110
_LEAST_PLACE, _LEAST_TYPE = 12, 6


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of bars and marks; a terminal without Unicode gets ASCII."""

    full: str = "━"
    rest: str = "─"
    dots: str = "…"
    dot: str = "·"
    none: str = "–"

    @classmethod
    def for_encoding(cls, encoding: str | None) -> Glyphs:
        plain = cls("#", "-", "~", "|", "-")
        return cls() if (encoding or "").lower().replace("-", "").startswith("utf") else plain


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of a run, with what one snapshot does not contain: rates by node name, and remaining times."""

    file: str
    snapshot: Snapshot
    word: str
    """The state of the run in words."""
    rates: Mapping[str, float] = field(default_factory=dict)
    rate: float = 0.0
    left: Mapping[str, float] = field(default_factory=dict)
    """Seconds until a source ends, by source name; the empty name stands for all sources together."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where the rows of a node come from or go to, by node name."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cell: Callable[[NodeProgress], str]
    least_width: int = 0
    """The terminal must be at least this wide to show the column."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The number columns that fit, and the width of every column; `place` is 0 if that column is left out."""

    columns: Sequence[_Column]
    widths: Sequence[int]
    name: int
    place: int


def lines(view: View, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The whole table, for a terminal of this size."""
    room = max(20, width - 1)
    nodes = view.snapshot.nodes
    if not nodes:
        return [_header(view, min(room, _PAGE), glyphs)]
    # Besides the nodes: a header, the bars, the titles, the troubles, a footer, and the two lines that a screen needs.
    troubles = [((shorten(text, room, glyphs), "bold yellow"),) for text in view.snapshot.troubles]
    free = max(1, height - 5 - len(list(_bars(view, room, glyphs))) - len(troubles))
    visible = _visible_nodes(nodes, free)
    body = list(_body(view, visible, room, glyphs))
    if hidden := len(nodes) - len(visible):
        body.append(((f"{glyphs.dots} and {hidden} more", "dim"),))
    # As wide as the rows are, so that header and bars do not reach beyond them on a wide terminal.
    page = min(room, max(_PAGE, *(cells("".join(text for text, _ in line)) for line in body)))
    table = [_header(view, page, glyphs), *_bars(view, page, glyphs), *body, *troubles, _footer(view, page, glyphs)]
    return table[: max(1, height - 2)]


def shorten(text: str, room: int, glyphs: Glyphs) -> str:
    """The text in at most `room` columns; its middle is left out if it is longer."""
    text = printable(text)
    if cells(text) <= room:
        return text
    if room <= 1:
        return glyphs.dots[:room]
    head = cut(text, room // 2)
    tail = cut(text[::-1], room - 1 - cells(head))[::-1]
    return head + glyphs.dots + tail


def _header(view: View, room: int, glyphs: Glyphs) -> Line:
    snapshot = view.snapshot
    facts = []
    if snapshot.epochs:
        facts.append(number_of(snapshot.epochs, "epoch"))
    if snapshot.last_epoch_ms is not None:
        facts.append(f"last {snapshot.last_epoch_ms:,.0f} ms")
    facts.append(clock(snapshot.seconds))
    separator = f" {glyphs.dot} "
    while len(facts) > 1 and len(view.word) + _GAP + len(separator.join(facts)) > room:
        facts.pop(-2)  # the time is the last to go
    right = separator.join(facts)
    name_room = max(0, room - len(view.word) - len(right) - 2 * _GAP)
    name = shorten(view.file, name_room, glyphs) if name_room > 4 else ""
    spaces = max(_GAP, room - len(view.word) - _GAP - cells(name) - len(right))
    style = _WORD_STYLES[view.word]
    return _cut_line(((view.word, style), (" " * _GAP, ""), (name, "bold"), (" " * spaces, ""), (right, "dim")), room)


def _bars(view: View, room: int, glyphs: Glyphs) -> Iterator[Line]:
    snapshot = view.snapshot
    if not snapshot.bounded or snapshot.phase is Phase.STARTING:
        return
    extents = {node.name: node.extent for node in snapshot.nodes if node.extent is not None}
    if not extents:
        return
    left = view.left if view.word == "running" else {}  # a run that was stopped does not reach its end
    units = {extent.unit for extent in extents.values()}
    if len(units) == 1:
        done, total = (sum(getattr(e, name) for e in extents.values()) for name in ("done", "total"))
        yield _bar("", done, total, units.pop(), left.get(""), room, glyphs)
        return
    label = min(20, max(map(cells, extents)))
    for name, extent in extents.items():
        title = _pad(shorten(name, label, glyphs), label + _GAP)
        yield _bar(title, extent.done, extent.total, extent.unit, left.get(name), room, glyphs)


def _bar(title: str, done: int, total: int, unit: str, left: float | None, room: int, glyphs: Glyphs) -> Line:
    share = min(1.0, done / total) if total else 1.0
    percent = f"{int(share * 100):>3} %"
    amount = f"{quantity(done, unit)} of {quantity(total, unit)} {'' if unit == BYTES else unit}".rstrip()
    parts = [percent, amount, *([f"{clock(left)} left"] if left is not None and share < 1 else [])]
    while len(parts) > 1 and room - len(title) - len("  ".join(parts)) - _GAP < 10:
        parts.pop(1)
    text = (" " * _GAP).join(parts)
    length = max(0, room - len(title) - len(text) - _GAP)
    filled = int(length * share)
    line = (
        (title, ""),
        (glyphs.full * filled, "green"),
        (glyphs.rest * (length - filled), "dim"),
        (" " * _GAP + text, ""),
    )
    return _cut_line(line, room)


def _visible_nodes(nodes: Sequence[NodeProgress], free: int) -> Sequence[NodeProgress]:
    """As many nodes as fit, sources and sinks before transforms: rows in and out say more than rows in between."""
    if len(nodes) <= free:
        return nodes
    indexes = sorted(range(len(nodes)), key=lambda i: (nodes[i].role is Role.TRANSFORM, i))[: max(1, free - 1)]
    return [nodes[i] for i in sorted(indexes)]


def _body(view: View, nodes: Sequence[NodeProgress], room: int, glyphs: Glyphs) -> Iterator[Line]:
    layout = _layout(view, nodes, room, glyphs)
    gap = " " * _GAP
    sized = list(zip(layout.columns, layout.widths, strict=True))
    titles = "".join(gap + column.title.rjust(width) for column, width in sized)
    yield (("node".ljust(layout.name) + titles + (f"{gap}where" if layout.place else ""), "dim"),)
    for node in nodes:
        numbers = "".join(gap + column.cell(node).rjust(width) for column, width in sized)
        place = shorten(view.places.get(node.name, ""), layout.place, glyphs)
        yield (*_name_and_type(node, layout.name, glyphs), (numbers, ""), (gap + place if place else "", "dim"))


def _layout(view: View, nodes: Sequence[NodeProgress], room: int, glyphs: Glyphs) -> _Layout:
    columns = [column for column in _columns(view, nodes, glyphs) if column.least_width <= room + 1]
    while True:
        widths = [max(_LEAST_NUMBER, len(c.title), *(len(c.cell(node)) for node in nodes)) for c in columns]
        name_room = room - sum(widths) - _GAP * len(widths)
        if name_room >= _LEAST_NAME or not columns:
            break
        columns.remove(max(columns, key=lambda column: column.least_width))
    longest = max(cells(f"{node.name} ({node.type})") for node in nodes)
    name = max(min(name_room, _MOST_NAME if room >= _WIDE else name_room, longest), min(_LEAST_NAME, name_room))
    place = room - name - sum(widths) - _GAP * (len(widths) + 1)
    has_place = room + 1 >= _WIDE and place >= _LEAST_PLACE and any(view.places.get(node.name) for node in nodes)
    return _Layout(columns, widths, name, place if has_place else 0)


def _columns(view: View, nodes: Sequence[NodeProgress], glyphs: Glyphs) -> list[_Column]:
    def counted(rows: int | None) -> str:
        return glyphs.none if rows is None else count(rows)

    def rate(node: NodeProgress) -> str:
        return glyphs.none if node.throughput is None else speed(view.rates.get(node.name, 0.0))

    def lag(node: NodeProgress) -> str:
        extent = node.extent
        if extent is None:
            return ""
        unit = "" if extent.unit in ("rows", BYTES) else f" {extent.unit}"
        return quantity(max(0, extent.total - extent.done), extent.unit) + unit

    columns = [
        _Column("rows in", lambda n: "" if n.role is Role.SOURCE else counted(n.rows_in), 60),
        _Column("rows out", lambda n: counted(n.rows_out)),
        _Column("rows/s", rate, 40),
    ]
    if any(node.extent is not None for node in nodes):
        columns.append(_Column("lag", lag, 50))
    if any(node.rejected for node in nodes):
        columns.append(_Column("set aside", lambda n: count(n.rejected) if n.rejected else "", 70))
    return columns


def _name_and_type(node: NodeProgress, width: int, glyphs: Glyphs) -> tuple[Fragment, Fragment]:
    """Both in `width` columns; the type is shortened before the name."""
    type_ = printable(f" ({node.type})")
    over = cells(node.name) + cells(type_) - width
    if over > 0:
        type_ = shorten(type_, max(cells(type_) - over, width // 3), glyphs)
        type_ = type_ if cells(type_) >= _LEAST_TYPE else ""
    name = shorten(node.name, width - cells(type_), glyphs)
    return (name, "bold"), (_pad(type_, width - cells(name)), "dim")


def _footer(view: View, room: int, glyphs: Glyphs) -> Line:
    rows = number_of(view.snapshot.rows, "row")
    return _cut_line(((rows, "bold"), (f" {glyphs.dot} {speed(view.rate)} rows/s", "")), room)


def _cut_line(line: Sequence[Fragment], room: int) -> Line:
    fragments: list[Fragment] = []
    for text, style in line:
        fragments.append((cut(text, room), style))
        room -= cells(fragments[-1][0])
    return tuple(fragments)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))
