"""The table of a run: no line is too long, only changes are written, and printed rows stay above it."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pyte
import pytest

from streamling.cli.display import Meter
from streamling.cli.quantities import clock, count, quantity
from streamling.cli.screen import Screen, StreamAbove
from streamling.cli.table import Glyphs, View, lines, shorten
from streamling.cli.terminal import cells
from streamling.connector import Extent
from streamling.engine.protocol.progress import NodeProgress, Phase, Snapshot
from streamling.spec.pipeline import Role

GLYPHS = Glyphs()
SOURCE, TRANSFORM, SINK = Role.SOURCE, Role.TRANSFORM, Role.SINK
NODES = (
    NodeProgress("orders", SOURCE, "kafka", rows_out=1_234_567, extent=Extent(1_234_567, 2_000_000, "rows")),
    NodeProgress("only_the_first_pages_of_every_single_customer", TRANSFORM, "sql"),
    NodeProgress("archive", SINK, "file", rows_in=1_234_567, rows_out=1_234_567, rejected=12),
)


def view(*nodes: NodeProgress, bounded: bool = True, **more: object) -> View:
    snapshot = Snapshot(
        Phase.RUNNING,
        nodes or NODES,
        epochs=42,
        rows=1_234_567,
        last_epoch_ms=812.4,
        seconds=3725,
        start_seconds=5,
        bounded=bounded,
    )
    given: dict[str, object] = {"rates": {"orders": 12_345.6}, "rate": 12_345.6, "left": {"": 62.0}, **more}
    return View("orders.yaml", snapshot, "running", **given)  # type: ignore[arg-type]


def text_of(view: View, width: int = 80, height: int = 24, glyphs: Glyphs = GLYPHS) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines(view, width, height, glyphs)]


# The table


def test_at_80_columns_everything_that_counts_is_there() -> None:
    assert text_of(view()) == [
        "running  orders.yaml                          42 epochs · last 812 ms · 1:02:05",
        "━━━━━━━━━━━━━━━━━────────────   61 %  1,234,567 of 2,000,000 rows  0:01:02 left",
        "node                        rows in   rows out     rows/s        lag  set aside",
        "orders (kafka)                       1,234,567     12,346    765,433",
        "only_the_…customer (sql)          –          –          –",
        "archive (file)            1,234,567  1,234,567          0                    12",
        "1,234,567 rows · 12,346 rows/s",
    ]


def test_on_a_narrow_terminal_what_is_left_is_whole() -> None:
    assert text_of(view(), 40) == [
        "running  orde…yaml  42 epochs · 1:02:05",
        "━━━━━━━━━━━───────   61 %  0:01:02 left",
        "node                rows out     rows/s",
        "orders (kafka)     1,234,567     12,346",
        "only_the…customer          –          –",
        "archive (file)     1,234,567          0",
        "1,234,567 rows · 12,346 rows/s",
    ]


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 70, 80, 100, 120, 140, 200])
@pytest.mark.parametrize("name", ["a", "an_orderly_name", "x" * 200, "名前" * 40, "a\x1b[2J\tb\n"])
def test_no_line_reaches_the_edge(width: int, name: str) -> None:
    nodes = (
        NodeProgress(name, SOURCE, "generator", rows_out=10**13, extent=Extent(3, 10**13, "rows")),
        NodeProgress(f"{name}2", SOURCE, "y" * 60, rows_out=0, extent=Extent(3 * 10**9, 10**12, "bytes"), rejected=7),
        NodeProgress(f"{name}3", SINK, "file", rows_in=5, rows_out=4),
    )
    places = {f"{name}3": "https://example.com/" + "z" * 100}
    for line in text_of(view(*nodes, places=places, left={name: 1e7}), width):
        assert cells(line) < max(width, 21)
        assert line.isprintable()


def test_columns_come_with_the_width() -> None:
    places = {"archive": "out/orders"}
    titles = {width: text_of(view(places=places), width)[2].split() for width in (36, 58, 80, 140)}
    assert titles[36] == ["node", "rows", "out"]
    assert "lag" in titles[58] and "in" not in titles[58]
    assert "lag" in titles[80] and "in" in titles[80] and "where" not in titles[80]
    assert "where" in titles[140]
    assert any(line.endswith("out/orders") for line in text_of(view(places=places), 140))


def test_a_source_in_another_unit_gets_a_bar_of_its_own() -> None:
    nodes = (
        NodeProgress("topic", SOURCE, "kafka", extent=Extent(1, 4, "rows")),
        NodeProgress("files", SOURCE, "file", extent=Extent(1_500_000, 3_000_000, "bytes")),
    )
    _, first, second, *_ = text_of(view(*nodes, left={}))
    assert first.startswith("topic  ━") and " 25 %  1 of 4 rows" in first
    assert second.startswith("files  ━") and " 50 %  1.5 MB of 3.0 MB" in second


@pytest.mark.parametrize("word", ["stopping", "stopped", "failed"])
def test_what_was_stopped_has_no_time_left(word: str) -> None:
    assert "left" in text_of(view())[1]
    bar = text_of(replace(view(), word=word))[1]
    assert "61 %" in bar
    assert "left" not in bar


def test_endless_work_has_no_bar() -> None:
    assert not any("━" in line for line in text_of(view(bounded=False)))


def test_of_many_nodes_those_at_the_ends_are_shown() -> None:
    middle = [NodeProgress(f"step_{i}", TRANSFORM, "sql") for i in range(50)]
    text = text_of(view(NODES[0], *middle, NODES[2]), height=12)
    assert len(text) == 10
    assert any(line.startswith("orders") for line in text)
    assert any(line.startswith("archive") for line in text)
    assert any(line.startswith("… and 47 more") for line in text)


@pytest.mark.parametrize("height", [1, 2, 5, 8, 24])
def test_a_table_leaves_two_lines_of_the_window_free(height: int) -> None:
    nodes = [NodeProgress(f"step_{i}", TRANSFORM, "sql") for i in range(50)]
    assert len(text_of(view(NODES[0], *nodes), height=height)) <= max(1, height - 2)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    assert all(line.isascii() for line in text_of(view(), glyphs=Glyphs.for_encoding("ascii")))
    assert Glyphs.for_encoding("UTF-8") == GLYPHS


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [("abcdefghij", 10, "abcdefghij"), ("abcdefghij", 7, "abc…hij"), ("abcdefghij", 1, "…"), ("名前名前", 5, "名…前")],
)
def test_a_long_name_loses_its_middle(text: str, room: int, expected: str) -> None:
    assert shorten(text, room, GLYPHS) == expected


def test_numbers_are_written_for_people() -> None:
    assert count(1_234_567) == "1,234,567"
    assert count(12_345_678_901) == "12.346 G"
    assert quantity(999, "bytes") == "999 B"
    assert quantity(1_234_567, "bytes") == "1.2 MB"
    assert clock(3725) == "1:02:05"
    assert clock(90_061) == "1d 1:01:01"


# Rates


def test_a_rate_is_that_of_the_last_seconds() -> None:
    meter = Meter()
    for second in range(100):
        meter.see(second, second * (10 if second < 50 else 1000))
    assert 900 <= meter.rate(99) <= 1100


def test_what_grows_in_large_steps_has_a_steady_rate() -> None:
    meter = Meter()
    rates = []
    for tick in range(300):
        now = tick / 5
        meter.see(now, int(now // 4) * 400)
        rates.append(meter.rate(now))
    assert all(60 <= rate <= 140 for rate in rates[100:])


def test_what_stands_still_has_no_rate() -> None:
    meter = Meter()
    meter.see(0, 0)
    meter.see(1, 100)
    assert meter.rate(1) == 100
    assert meter.rate(30) == 0


# The screen


class Paper(io.StringIO):
    """A stream, and what a terminal of 40 columns and 10 lines shows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.screen = pyte.HistoryScreen(40, 10, history=100)
        self.screen.set_mode(pyte.modes.LNM)  # the terminal driver adds a carriage return to each newline
        self.stream = pyte.Stream(self.screen)
        self.last = ""
        self.columns = 40

    def width(self) -> int:
        return self.columns

    def write(self, text: str) -> int:
        self.last = text
        self.stream.feed(text)
        return len(text)

    @property
    def text(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display][: self.screen.cursor.y]


@pytest.fixture
def paper() -> Paper:
    return Paper()


def test_the_cursor_rests_below_and_is_never_hidden(paper: Paper) -> None:
    Screen(paper, paper.width).paint(["one", "two"], 40)
    assert paper.text == ["one", "two"]
    assert (paper.screen.cursor.x, paper.screen.cursor.hidden) == (0, False)


def test_only_what_has_changed_is_written(paper: Paper) -> None:
    screen = Screen(paper, paper.width)
    screen.paint(["one", "two", "three"], 40)
    screen.paint(["one", "2", "three"], 40)
    assert paper.text == ["one", "2", "three"]
    assert "three" not in paper.last
    assert "\x1b[J" not in paper.last
    paper.last = ""
    screen.paint(["one", "2", "three"], 40)
    assert paper.last == ""


def test_what_is_printed_appears_above(paper: Paper) -> None:
    screen = Screen(paper, paper.width)
    stream = StreamAbove(screen, paper)
    screen.paint(["table", "footer"], 40)
    stream.write("first\nsec")
    stream.write("ond\n")
    assert paper.text == ["first", "second", "table", "footer"]
    stream.write("no end")
    assert paper.text == ["first", "second", "table", "footer"]
    stream.finish()
    assert paper.text == ["first", "second", "no end", "table", "footer"]


def test_rows_that_scroll_away_are_not_lost(paper: Paper) -> None:
    screen = Screen(paper, paper.width)
    stream = StreamAbove(screen, paper)
    screen.paint(["table", "footer"], 40)
    for number in range(50):
        stream.write(f"row {number} {'x' * 45}\n")
    top = ["".join(row[x].data for x in range(40)).rstrip() for row in paper.screen.history.top]
    text = "".join([*top, *paper.text])
    assert re.findall(r"row (\d+) ", text) == [str(number) for number in range(50)]
    assert text.count("table") == 1


def test_a_block_that_does_not_fit_any_more_is_left_out_until_it_does(paper: Paper) -> None:
    screen = Screen(paper, paper.width)
    screen.paint(["x" * 39], 40)
    paper.columns = 20
    screen.print_above("a row\n")
    assert "xxx" not in paper.last
    screen.paint(["x" * 19], 20)
    assert paper.text[-2:] == ["a row", "x" * 19]


def test_a_block_that_shrinks_leaves_no_old_lines(paper: Paper) -> None:
    screen = Screen(paper, paper.width)
    screen.paint(["one", "two", "three"], 40)
    screen.paint(["single"], 40)
    assert paper.text == ["single"]


def test_what_the_user_types_is_erased(paper: Paper) -> None:
    screen = Screen(paper, paper.width)
    screen.paint(["one", "two"], 40)
    paper.write("^C")
    screen.paint(["one", "2"], 40)
    assert [line.rstrip() for line in paper.screen.display][:3] == ["one", "2", ""]


@pytest.mark.parametrize("reflows", [True, False])
def test_a_narrower_terminal_keeps_what_is_above(reflows: bool, paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    if reflows:
        monkeypatch.delenv("XTERM_VERSION", raising=False)
    else:
        monkeypatch.setenv("XTERM_VERSION", "XTerm(390)")
    screen = Screen(paper, paper.width)
    screen.print_above("a row\n")
    screen.paint(["\x1b[1m" + "a" * 30 + "\x1b[0m", "b" * 10], 40)
    if reflows:  # what such a terminal shows then
        paper.screen.reset()
        paper.screen.set_mode(pyte.modes.LNM)
        paper.write(f"a row\n{'a' * 20}\n{'a' * 10}\n{'b' * 10}\n")
    paper.columns = 20
    screen.paint(["aaa", "bbb"], 20)
    assert paper.text == ["a row", "aaa", "bbb"]


def test_troubles_are_below_the_nodes() -> None:
    stalled = replace(NODES[0], trouble="no rows for 75 s; 765433 are left")
    text = text_of(view(stalled, *NODES[1:]))
    assert text[-2:] == ["orders: no rows for 75 s; 765433 are left", "1,234,567 rows · 12,346 rows/s"]
    assert all(cells(line) < 40 for line in text_of(view(stalled, *NODES[1:]), 40))
