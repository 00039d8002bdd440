"""Where a run ends and where the next one begins, however large its epochs are."""

from __future__ import annotations

import signal
import time

import pytest
from harness import Finished, MakeWorkspace, Row, Workspace, printed

pytestmark = pytest.mark.spark

MANY = 300_000
SHARED = """\
sources:
  numbers:
    type: generator
    rows: 300000
    primary_key: id
    columns: {id: id, name: "concat('n-', id)", bucket: id % 11}
transforms:
  kept:
    type: sql
    primary_key: id
    sql: SELECT id, name, bucket FROM numbers WHERE bucket <> 5
  sums:
    type: sql
    primary_key: id
    sql: SELECT id, id + bucket AS total FROM kept WHERE id % 3 = 0
sinks:
  kept: {type: file, from: kept, path: kept, format: parquet}
  again: {type: file, from: kept, path: again, format: csv}
  sums: {type: file, from: sums, path: sums, format: parquet}
""".replace("  kept: {type: file", "  all: {type: file")


def kept() -> list[Row]:
    return [{"id": i, "name": f"n-{i}", "bucket": i % 11, "_gs_op": "i"} for i in range(MANY) if i % 11 != 5]


def sums() -> list[Row]:
    return [{"id": r["id"], "total": r["id"] + r["bucket"], "_gs_op": "i"} for r in kept() if r["id"] % 3 == 0]


@pytest.mark.parametrize("settings", [{"EPOCH__DRIVER_ROWS": 0}, {}], ids=["executors", "driver first"])
def test_large_and_small_epochs_give_the_same_rows_in_the_same_order(
    place: Workspace, settings: dict[str, object]
) -> None:
    place.write(SHARED)
    place.run(**settings).succeeded()
    assert place.rows("kept", "parquet") == kept()
    assert place.rows("again", "csv") == kept()
    assert place.rows("sums", "parquet") == sums()


class TestResuming:
    """One pipeline that is run, extended and run again; each test looks at what happened."""

    PIPELINE = """\
sources:
  numbers:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, square: id * id}}
sinks:
  lines: {{type: print, from: numbers}}
  files: {{type: file, from: numbers, path: files, format: json}}
"""

    @pytest.fixture(scope="class")
    def place(self, new_place: MakeWorkspace) -> Workspace:
        return new_place()

    @pytest.fixture(scope="class")
    def runs(self, place: Workspace) -> list[Finished]:
        finished = []
        for rows in (40, 40, 100):
            place.write(self.PIPELINE.format(rows=rows))
            finished.append(place.run().succeeded())
        return finished

    def test_the_first_run_delivers_what_there_is(self, runs: list[Finished]) -> None:
        assert [row["id"] for _, _, _, row in printed(runs[0].stdout)] == list(range(40))

    def test_a_run_with_nothing_new_ends_at_once_and_delivers_nothing(self, runs: list[Finished]) -> None:
        assert runs[1].stdout == ""
        assert "done: 0 rows in 0 epochs" in runs[1].stderr

    def test_a_later_run_goes_on_behind_the_last_row(self, runs: list[Finished]) -> None:
        assert [row["id"] for _, _, _, row in printed(runs[2].stdout)] == list(range(40, 100))

    def test_nothing_is_doubled_in_the_files(self, place: Workspace, runs: list[Finished]) -> None:
        assert place.rows("files", "json") == [{"id": i, "square": i * i, "_gs_op": "i"} for i in range(100)]

    def test_epoch_numbers_go_on_across_runs(self, place: Workspace, runs: list[Finished]) -> None:
        assert place.state()["__epoch"] == 2

    def test_state_list_names_the_position_of_the_source(self, place: Workspace, runs: list[Finished]) -> None:
        assert place.state()["numbers:generator"] == {"next": 100}

    def test_state_show_prints_one_key_and_refuses_an_unknown_one(self, place: Workspace, runs: list[Finished]) -> None:
        assert '"next": 100' in place.run("state", "show", "numbers:generator").succeeded().stdout
        unknown = place.run("state", "show", "nothing")
        assert (unknown.code, unknown.stderr) == (1, "no such key: nothing\n")

    def test_another_application_has_no_state(self, place: Workspace, runs: list[Finished]) -> None:
        assert place.run("state", "list", "--application", "other").succeeded().stdout == ""

    def test_state_reset_asks_before_it_forgets(self, place: Workspace, runs: list[Finished]) -> None:
        assert place.run("state", "reset").code == 2
        assert place.state()["numbers:generator"] == {"next": 100}


ENDLESS = """\
sources:
  numbers: {type: generator, rate: 200, primary_key: id, columns: {id: id}}
transforms:
  some: {type: sql, primary_key: id, sql: "SELECT id, now() AS at FROM numbers WHERE id % 2 = 0"}
sinks:
  lines: {type: print, from: some}
"""


def test_a_record_limit_ends_the_run_although_input_remains_and_verbose_shows_the_log_of_spark(
    place: Workspace,
) -> None:
    place.write(ENDLESS)
    finished = place.run("run", "pipeline.yaml", "-v", NUM_RECORDS_BEFORE_STOP=50).succeeded()
    ids = [row["id"] for _, _, _, row in printed(finished.stdout)]
    assert len(ids) >= 50
    assert ids == list(range(0, 2 * len(ids), 2))
    assert "SparkContext" in finished.stderr


def test_sigterm_ends_an_endless_run_in_order_within_the_budget_and_memory_state_is_warned_about(
    place: Workspace,
) -> None:
    place.write(ENDLESS)
    child = place.start(STATE_BACKEND__BACKEND_TYPE="InMemory")
    child.until(lambda: child.epochs >= 3, "three epochs")
    began = time.monotonic()
    child.signal(signal.SIGTERM)
    finished = child.wait(40).succeeded()
    assert time.monotonic() - began < 25
    ids = [row["id"] for _, _, _, row in printed(finished.stdout)]
    assert ids == list(range(0, 2 * len(ids), 2))
    assert "WARNING state is kept in memory: progress is lost on restart" in finished.stderr
    assert not (place.directory / "state.db").exists()
