"""When a run ends; and that the rows do not depend on the size of its epochs."""

from __future__ import annotations

import time

import pytest

from support.harness import Row, Workspace, printed

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
  kept_rows: {type: file, from: kept, path: kept, format: parquet}
  kept_again: {type: file, from: kept, path: again, format: csv}
  sum_rows: {type: file, from: sums, path: sums, format: parquet}
  nothing: {type: blackhole, from: sums}
"""


def kept() -> list[Row]:
    return [{"id": i, "name": f"n-{i}", "bucket": i % 11, "_gs_op": "i"} for i in range(MANY) if i % 11 != 5]


def sums() -> list[Row]:
    return [{"id": r["id"], "total": r["id"] + r["bucket"], "_gs_op": "i"} for r in kept() if r["id"] % 3 == 0]


@pytest.mark.parametrize("settings", [{"EPOCH__DRIVER_ROWS": 0}, {}], ids=["executors", "driver first"])
def test_large_and_small_epochs_give_the_same_rows_in_the_same_order(
    place: Workspace, settings: dict[str, object]
) -> None:
    place.write(SHARED)
    finished = place.run(**settings).succeeded()
    assert place.rows("kept", "parquet") == kept()
    assert place.rows("again", "csv") == kept()
    assert place.rows("sums", "parquet") == sums()
    assert f"nothing {len(sums())}" in finished.stderr.replace(",", "")


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
    assert "log4j" in finished.stderr


def test_sigterm_ends_an_endless_run_in_order_within_the_budget_and_memory_state_is_warned_about(
    place: Workspace,
) -> None:
    place.write(ENDLESS)
    running = place.start_warm(STATE_BACKEND__BACKEND_TYPE="InMemory")
    running.until_epochs(3)
    began = time.monotonic()
    finished = running.stop().succeeded()
    assert time.monotonic() - began < 25
    ids = [row["id"] for _, _, _, row in printed(finished.stdout)]
    assert ids == list(range(0, 2 * len(ids), 2))
    assert "WARNING state is kept in memory: progress is lost on restart" in finished.stderr
    assert not (place.directory / "state.db").exists()
