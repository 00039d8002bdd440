"""What a run looks like on the screen: a header, a bar, a row per node, a footer. Text and styles, no terminal.

No line is longer than asked for. Columns come and go with the width; long names are shortened in the middle, because
names of one pipeline tend to differ at their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamling.cli.terminal import Fragment, cells, printable
from streamling.engine.protocol.progress import NodeProgress, Phase, Snapshot
from streamling.spec.pipeline import Role

Line = tuple[Fragment, ...]

_PHASES = {
    "starting": "bold yellow",
    "running": "bold green",
    "stopping": "bold yellow",
    "stopped": "bold yellow",
    "done": "bold green",
    "failed": "bold red",
}
_GAP = 2
_LEAST_NAME, _MOST_NAME = 16, 44
# As wide as a page of text, even if the rows are shorter.
_PAGE = 79
# From here on there is room to say where rows come from and go to.
_WIDE = 110
_LEAST_PLACE, _LEAST_TYPE = 12, 6
_BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What is drawn with; a terminal that does not speak Unicode gets plain letters."""

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
    """A moment of a run, with what cannot be seen in one moment: rates, by name of node, and times that are left."""

    file: str
    snapshot: Snapshot
    word: str
    rates: Mapping[str, float] = field(default_factory=dict)
    rate: float = 0.0
    left: Mapping[str, float] = field(default_factory=dict)
    """Seconds until a source is at its end, by name of source; under the empty name that of all together."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where the rows of a node come from or go to."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cell: Callable[[NodeProgress], str]
    least_width: int = 0
    """The terminal must be that wide for it to be shown."""


def lines(view: View, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The whole display, for a terminal of that size."""
    room = max(20, width - 1)
    nodes = view.snapshot.nodes
    if not nodes:
        return [_header(view, min(room, _PAGE), glyphs)]
    # Beside the nodes: a header, the bars, the titles, what is wrong, a footer, a line for the cursor.
    troubles = [((shortened(text, room, glyphs), "bold yellow"),) for text in view.snapshot.troubles]
    free = max(1, height - 4 - len(list(_bars(view, room, glyphs))) - len(troubles))
    shown, hidden = _chosen(nodes, free)
    body = list(_body(view, shown, room, glyphs))
    if hidden:
        body.append(((f"{glyphs.dots} and {hidden} more", "dim"),))
    # As wide as the rows are, so that nothing stands apart on a wide terminal.
    page = min(room, max(_PAGE, *(cells("".join(text for text, _ in line)) for line in body)))
    return [_header(view, page, glyphs), *_bars(view, page, glyphs), *body, *troubles, _footer(view, page, glyphs)]


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
    left_room = max(0, room - len(view.word) - len(right) - 2 * _GAP)
    name = shortened(view.file, left_room, glyphs) if left_room > 4 else ""
    blanks = max(_GAP, room - len(view.word) - _GAP - cells(name) - len(right))
    line = ((view.word, _PHASES[view.word]), (" " * _GAP, ""), (name, "bold"), (" " * blanks, ""), (right, "dim"))
    return _clipped(line, room)


def _bars(view: View, room: int, glyphs: Glyphs) -> Iterator[Line]:
    snapshot = view.snapshot
    if not snapshot.bounded or snapshot.phase is Phase.STARTING:
        return
    extents = {node.name: node.extent for node in snapshot.nodes if node.extent is not None}
    if not extents:
        return
    left = view.left if view.word == "running" else {}  # what was stopped does not come to its end
    units = {extent.unit for extent in extents.values()}
    if len(units) == 1:
        done, total = (sum(getattr(e, name) for e in extents.values()) for name in ("done", "total"))
        yield _bar("", done, total, units.pop(), left.get(""), room, glyphs)
        return
    label = min(20, max(map(cells, extents)))
    for name, extent in extents.items():
        title = _padded(shortened(name, label, glyphs), label + _GAP)
        yield _bar(title, extent.done, extent.total, extent.unit, left.get(name), room, glyphs)


def _bar(title: str, done: int, total: int, unit: str, left: float | None, room: int, glyphs: Glyphs) -> Line:
    share = min(1.0, done / total) if total else 1.0
    percent = f"{int(share * 100):>3} %"
    amount = f"{quantity(done, unit)} of {quantity(total, unit)} {'' if unit == _BYTES else unit}".rstrip()
    parts = [percent, amount, *([f"{clock(left)} left"] if left is not None and share < 1 else [])]
    while len(parts) > 1 and room - len(title) - len("  ".join(parts)) - _GAP < 10:
        parts.pop(1)
    text = (" " * _GAP).join(parts)
    cells = max(0, room - len(title) - len(text) - _GAP)
    filled = int(cells * share)
    line = (
        (title, ""),
        (glyphs.full * filled, "green"),
        (glyphs.rest * (cells - filled), "dim"),
        (" " * _GAP + text, ""),
    )
    return _clipped(line, room)


def _chosen(nodes: Sequence[NodeProgress], free: int) -> tuple[Sequence[NodeProgress], int]:
    """As many nodes as fit. What flows in and out says more than what lies between."""
    if len(nodes) <= free:
        return nodes, 0
    kept = sorted(range(len(nodes)), key=lambda i: (nodes[i].role is Role.TRANSFORM, i))[: max(1, free - 1)]
    return [nodes[i] for i in sorted(kept)], len(nodes) - len(kept)


def _body(view: View, nodes: Sequence[NodeProgress], room: int, glyphs: Glyphs) -> Iterator[Line]:
    columns = _columns(view, nodes, glyphs)
    while True:
        shown = [c for c in columns if c.least_width <= room + 1]
        grid = [[c.cell(node) for c in shown] for node in nodes]
        widths = [max(9, len(c.title), *(len(row[i]) for row in grid)) for i, c in enumerate(shown)]
        name_room = room - sum(widths) - _GAP * len(widths)
        if name_room >= _LEAST_NAME or not shown:
            break
        columns = [c for c in columns if c is not max(shown, key=lambda c: c.least_width)]
    longest = max(cells(f"{n.name} ({n.type})") for n in nodes)
    name_width = max(min(name_room, _MOST_NAME if room >= _WIDE else name_room, longest), min(_LEAST_NAME, name_room))
    place_width = room - name_width - sum(widths) - _GAP * (len(widths) + 1)
    with_place = room + 1 >= _WIDE and place_width >= _LEAST_PLACE and any(view.places.get(n.name) for n in nodes)
    titles = "".join(" " * _GAP + c.title.rjust(w) for c, w in zip(shown, widths, strict=True))
    yield (("node".ljust(name_width) + titles + ("  where" if with_place else ""), "dim"),)
    for node, row in zip(nodes, grid, strict=True):
        numbers = "".join(" " * _GAP + cell.rjust(w) for cell, w in zip(row, widths, strict=True))
        place = view.places.get(node.name, "") if with_place else ""
        yield (
            *_named(node, name_width, glyphs),
            (numbers, ""),
            ("  " + shortened(place, place_width, glyphs) if place else "", "dim"),
        )


def _columns(view: View, nodes: Sequence[NodeProgress], glyphs: Glyphs) -> list[_Column]:
    def counted(rows: int | None) -> str:
        return glyphs.none if rows is None else count(rows)

    def rate(node: NodeProgress) -> str:
        return glyphs.none if node.throughput is None else speed(view.rates.get(node.name, 0.0))

    def lag(node: NodeProgress) -> str:
        extent = node.extent
        if extent is None:
            return ""
        unit = "" if extent.unit in ("rows", _BYTES) else f" {extent.unit}"
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


def _named(node: NodeProgress, width: int, glyphs: Glyphs) -> tuple[Fragment, Fragment]:
    """Name and type; the name gives way last."""
    type_ = printable(f" ({node.type})")
    over = cells(node.name) + cells(type_) - width
    if over > 0:
        type_ = shortened(type_, max(cells(type_) - over, width // 3), glyphs)
        type_ = type_ if cells(type_) >= _LEAST_TYPE else ""
    name = shortened(node.name, width - cells(type_), glyphs)
    return (name, "bold"), (_padded(type_, width - cells(name)), "dim")


def _footer(view: View, room: int, glyphs: Glyphs) -> Line:
    return _clipped(
        ((number_of(view.snapshot.rows, "row"), "bold"), (f" {glyphs.dot} {speed(view.rate)} rows/s", "")), room
    )


def shortened(text: str, room: int, glyphs: Glyphs) -> str:
    """The text in at most `room` columns, its middle left out if need be."""
    text = printable(text)
    if cells(text) <= room:
        return text
    if room <= 1:
        return glyphs.dots[:room]
    head = _fitting(text, room // 2)
    tail = _fitting(text[::-1], room - 1 - cells(head))[::-1]
    return head + glyphs.dots + tail


def _fitting(text: str, room: int) -> str:
    """As much of the beginning as fits."""
    taken = 0
    for end, character in enumerate(text):
        taken += cells(character)
        if taken > room:
            return text[:end]
    return text


def count(rows: int) -> str:
    """Thousands apart; beyond that in thousands of millions."""
    return f"{rows:,}" if rows < 1_000_000_000 else f"{rows / 1e9:,.3f} G"


def number_of(amount: int, noun: str) -> str:
    """`1 row`, `1,234 rows`."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def quantity(amount: int, unit: str) -> str:
    """A number in its unit; bytes in the one that suits them."""
    if unit != _BYTES:
        return count(amount)
    size, names = float(amount), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(names) > 1:
        size /= 1000
        names.pop(0)
    return f"{size:.0f} {names[0]}" if names[0] == "B" else f"{size:.1f} {names[0]}"


def speed(rate: float) -> str:
    return f"{rate:,.1f}" if 0.05 <= rate < 10 else f"{rate:,.0f}"


def clock(seconds: float) -> str:
    """`1:02:03`; days before it where there are any."""
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}d " if days else "") + f"{hours}:{minutes:02}:{whole:02}"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def _clipped(line: Sequence[Fragment], room: int) -> Line:
    kept: list[Fragment] = []
    for text, style in line:
        kept.append((_fitting(text, room), style))
        room -= cells(kept[-1][0])
    return tuple(kept)
