"""What a user at a terminal sees: nothing wraps, nothing flickers, and the terminal works as before afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.terminal import Terminal

ORDERS = """\
sources:
  orders: {type: generator, rows: 3000, rate: 900, primary_key: id, columns: {id: id, page: "concat('/page/', id % 3)"}}
transforms:
  only_the_first_pages_of_every_customer:
    type: sql
    primary_key: id
    sql: SELECT id, page FROM orders WHERE id % 3 = 0
sinks:
  screen:
    {type: print, from: only_the_first_pages_of_every_customer, sample_every: 100, batch_flush_interval: 500ms}
  files: {type: file, from: orders, path: out/orders, format: json, batch_flush_interval: 500ms}
"""
# Where nobody looks at it while it runs, it needs no Spark.
PLAIN = """\
sources:
  orders: {type: file, path: orders.csv, format: csv, mode: {type: bounded}, primary_key: id}
sinks:
  screen: {type: print, from: orders, sample_every: 100}
  files: {type: file, from: orders, path: out/orders, format: json}
"""
ENDLESS = ORDERS.replace("rows: 3000, ", "")
BROKEN = ORDERS.replace("WHERE id % 3 = 0", "WHERE 100 / (1500 - id) <> 0")
INVALID = ORDERS.replace("from: orders", "from: order")
CLEARS = (b"\x1b[2J", b"\x1b[3J", b"\x1b[?1049h", b"\x1bc")


class Desk:
    """Opens terminals in one directory; none of them outlives it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened: list[Terminal] = []

    def run(self, text: str, *arguments: str, **more: object) -> Terminal:
        (self.directory / "orders.yaml").write_text(text)
        opened = Terminal(list(arguments or ("run", "orders.yaml")), self.directory, **more)  # type: ignore[arg-type]
        self._opened.append(opened)
        return opened

    def run_plain(self, *arguments: str, **more: object) -> Terminal:
        """A thousand orders, of which every hundredth is printed."""
        (self.directory / "orders.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(1000)))
        return self.run(PLAIN, *arguments, spark=False, **more)

    def close(self) -> None:
        for terminal in self._opened:
            terminal.kill()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def untouched(terminal: Terminal) -> None:
    """The terminal works as before: the cursor is visible, at the beginning of a line, and nothing was cleared."""
    assert not terminal.screen.cursor.hidden
    assert b"\x1b[?25l" not in terminal.raw
    assert terminal.screen.cursor.x == 0
    assert not any(clear in terminal.raw for clear in CLEARS)


# Runs


@pytest.mark.spark
@pytest.mark.parametrize("columns", [80, 140])
def test_a_run_is_shown_in_place_and_ends_with_a_summary(columns: int, desk: Desk) -> None:
    slow = ORDERS.replace("rate: 900", "rate: 400")  # time is left after the first epochs, however busy the machine is
    terminal = desk.run(slow, columns=columns, lines=30)

    def is_shown() -> bool:
        """All lines of a table: a frame arrives in pieces."""
        running = re.search(r"(running|stopping)  orders.yaml .* \d+ epochs? ", terminal.text)
        lines = terminal.text.splitlines()
        source = any(line.startswith("orders (generator)") for line in lines)
        return running is not None and source and sum("rows/s" in line for line in lines) == 2

    terminal.until(is_shown)
    assert ("where" in terminal.text) is (columns == 140)
    assert terminal.wait() == 0
    untouched(terminal)
    assert re.search(rb"\d:\d\d:\d\d left", terminal.raw)
    # The table is erased when rows are printed above it or its shape changes, not when numbers change.
    assert terminal.raw.count(b"\x1b[J") <= 20 < terminal.raw.count(b"\x1b[?2026h")
    # Every row of the print sink once, above the table; the table once; no line wrapped.
    everything = terminal.everything
    assert re.findall(r"^(\d+) -> .*\}$", everything, re.MULTILINE) == [str(n) for n in range(100, 1001, 100)]
    table = everything[everything.index("done  orders.yaml") :]
    assert everything.count("orders (generator)") == 1
    assert table.count("100 %  3,000 of 3,000 rows") == 1
    assert "Epoch finalized" not in everything
    assert re.search(r"^read +3,000 rows in \d+ epochs, ", table, re.MULTILINE)
    assert re.search(
        r"^written +screen +10 rows  standard output\n +files +3,000 rows  out/orders$", table, re.MULTILINE
    )
    assert "./state.db; run it again and it resumes" in table


@pytest.mark.spark
def test_ctrl_c_and_a_new_size_leave_a_terminal_in_order(desk: Desk) -> None:
    # This emulator does not reflow lines, like an old xterm.
    terminal = desk.run(ENDLESS, columns=120, lines=30, environment={"XTERM_VERSION": "XTerm(390)"})
    terminal.until(lambda: " 2 epochs " in terminal.text)
    assert "where" in terminal.text
    terminal.resize(60, 30)
    terminal.until(lambda: "where" not in terminal.text)
    terminal.look_for(1)
    terminal.until(lambda: terminal.everything.count("orders (generator)") == 1)  # not between two halves of a frame
    assert not re.search(r"^ *(rows/s|lag)$", terminal.text, re.MULTILINE)
    terminal.type(b"\x03")
    assert terminal.wait() == 0
    untouched(terminal)
    assert "^C" not in terminal.text
    assert terminal.everything.count("orders (generator)") == 1
    assert re.search(r"^stopped  orders.yaml", terminal.text, re.MULTILINE)
    assert re.search(r"^read +[\d,]+ rows in \d+ epochs", terminal.text, re.MULTILINE)


@pytest.mark.spark
def test_a_run_that_fails_shows_how_far_it_came_and_why(desk: Desk) -> None:
    terminal = desk.run(BROKEN, columns=80, lines=40)
    assert terminal.wait() == 1
    untouched(terminal)
    table, _, error = terminal.everything.partition("\nStreamling Error")
    assert "failed  orders.yaml" in table
    assert table.count("orders (generator)") == 1
    assert error


def test_rows_that_go_elsewhere_are_nothing_but_rows(desk: Desk) -> None:
    rows = desk.directory / "rows.txt"
    terminal = desk.run_plain(columns=80, lines=30, stdout=rows)
    assert terminal.wait() == 0
    assert "done  orders.yaml" in terminal.text
    assert "->" not in terminal.everything
    assert [line.split(" ")[0] for line in rows.read_text().splitlines()] == [str(n) for n in range(100, 1001, 100)]


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["run", "orders.yaml", "-q"], {}), (["run", "orders.yaml"], {"TERM": "dumb"})]
)
def test_without_the_table_there_are_log_lines(arguments: list[str], environment: dict[str, str], desk: Desk) -> None:
    terminal = desk.run_plain(*arguments, columns=80, lines=40, environment=environment)
    assert terminal.wait() == 0
    assert b"\x1b" not in terminal.raw
    assert ("Epoch finalized" in terminal.everything) is ("-q" not in arguments)


def test_the_address_of_the_admin_api_is_shown_above_the_table(desk: Desk) -> None:
    environment = {"STREAMLING__ADMIN_API_ENABLED": "true", "STREAMLING__ADMIN_API_PORT": "0"}
    terminal = desk.run_plain(columns=80, lines=40, environment=environment)
    assert terminal.wait() == 0
    assert re.search(r"the admin API listens on http://127\.0\.0\.1:\d+", terminal.everything)


def test_json_logs_end_with_the_summary(desk: Desk) -> None:
    environment = {"STREAMLING__LOG_FORMAT": "json", "TERM": "xterm"}
    terminal = desk.run_plain(columns=4000, lines=60, environment=environment)
    assert terminal.wait() == 0
    entries = [json.loads(line) for line in terminal.everything.splitlines() if line.startswith("{")]
    (summary,) = [entry["summary"] for entry in entries if "summary" in entry]
    assert (summary["rows"], summary["written"]) == (1000, {"screen": 10, "files": 1000})
    assert summary["outputs"]["files"] == "out/orders"
    assert summary["resumes"] is True


# Errors


def test_an_error_is_coloured_and_fits_the_terminal(desk: Desk) -> None:
    terminal = desk.run(INVALID, "validate", "orders.yaml", columns=60, lines=40)
    assert terminal.wait() == 1
    assert b"\x1b[1;31mStreamling Error" in terminal.raw
    assert b"\x1b[36m  hint: " in terminal.raw
    text = terminal.text.splitlines()
    assert all(len(line) < 60 for line in text)
    (caret,) = {i for i, line in enumerate(text) if line.strip() == "^"} & {
        i + 1 for i, line in enumerate(text) if "from: order," in line
    }
    assert text[caret - 1][text[caret].index("^") :].startswith("order,")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(environment: dict[str, str], desk: Desk) -> None:
    terminal = desk.run(INVALID, "validate", "orders.yaml", environment=environment)
    assert terminal.wait() == 1
    assert b"\x1b" not in terminal.raw
    assert "Streamling Error" in terminal.text


def test_a_pipeline_that_cannot_start_shows_the_error_alone(desk: Desk) -> None:
    terminal = desk.run(INVALID, columns=80, lines=40)
    assert terminal.wait() == 1
    untouched(terminal)
    assert terminal.text.startswith("Streamling Error")


def test_help_is_coloured_on_terminals_only(desk: Desk) -> None:
    terminal = desk.run(ORDERS, "run", "--help", columns=80, lines=40)
    assert terminal.wait() == 0
    assert b"\x1b[1mUsage:" in terminal.raw
    plain = desk.run(ORDERS, "run", "--help", columns=80, lines=40, environment={"NO_COLOR": "1"})
    assert plain.wait() == 0
    assert b"\x1b" not in plain.raw
    assert plain.text == terminal.text
