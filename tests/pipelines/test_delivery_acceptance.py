"""Printing, discarding, fanning out, widths, limits and stops, as users see them; the generator stands for a broker."""

from __future__ import annotations

import json

import pytest

from support.harness import Finished, MakeWorkspace, Workspace, printed

pytestmark = pytest.mark.spark

# One run for all that do not disturb each other: a hundred rows to every sort of sink, side by side.
PIPELINE = """\
sources:
  MyOrders:
    type: generator
    rows: 100
    columns: {id: id, userId: "concat('u', id)"}
transforms:
  NamedUsers:
    type: sql
    primary_key: id
    sql: SELECT id, "userId" FROM MyOrders
sinks:
  screen: {type: print, from: MyOrders}
  wide_screen: {type: print, from: myorders, parallelism: 3, batch_size: 1}
  nothing: {type: blackhole, from: NamedUsers}
  wide_nothing: {type: blackhole, from: MyOrders, parallelism: 4}
  first: {type: file, from: namedusers, path: first, format: json}
  second: {type: file, from: NamedUsers, path: second, format: parquet}
"""


@pytest.fixture(scope="module")
def place(new_place: MakeWorkspace) -> Workspace:
    return new_place().write(PIPELINE)


@pytest.fixture(scope="module")
def run(place: Workspace) -> Finished:
    return place.run().succeeded()


def test_pr_01_print_writes_every_row_in_the_documented_form(run: Finished) -> None:
    lines = [line for line in run.stdout.splitlines() if line.startswith("1 -> ")]
    assert lines[0] == '1 -> (sample_every=1) [Insert] {"id":0,"userId":"u0","_gs_op":"i"}'
    assert len(printed(run.stdout)) == 200


def test_pr_03_blackhole_takes_all_and_writes_nothing(place: Workspace, run: Finished) -> None:
    assert "nothing 100" in run.stderr and "wide_nothing 100" in run.stderr
    assert sorted(p.name for p in place.directory.iterdir() if p.is_dir()) == ["first", "second"]


def test_ms_several_sinks_of_one_node_get_the_same_rows(place: Workspace, run: Finished) -> None:
    ids = [row["id"] for row in place.rows("first", "json")]
    assert ids == list(range(100))
    assert [row["id"] for row in place.rows("second", "parquet")] == ids


def test_pl_07_a_wide_print_without_a_key_has_every_row_once(run: Finished) -> None:
    ids = [row["id"] for _, _, _, row in printed(run.stdout)]
    assert sorted(ids) == sorted([*range(100), *range(100)])


def test_ad_11_names_with_capitals_are_found_and_columns_keep_theirs(place: Workspace, run: Finished) -> None:
    assert [row["userId"] for row in place.rows("first", "json")] == [f"u{i}" for i in range(100)]


def test_sd_01_a_branch_that_ends_early_neither_ends_nor_stalls_the_other(new_place: MakeWorkspace) -> None:
    place = new_place().write(
        """\
sources:
  a: {type: generator, rows: 5, primary_key: id, columns: {id: id}}
  b: {type: generator, rows: 200, rate: 100, primary_key: id, columns: {id: id}}
sinks:
  pa: {type: file, from: a, path: a, format: json, batch_size: 1}
  pb: {type: file, from: b, path: b, format: json, batch_size: 1}
"""
    )
    place.run(JOB_MODE="true", CHECKPOINT_INTERVAL_SEC=1).succeeded()
    assert [row["id"] for row in place.rows("a", "json")] == list(range(5))
    assert [row["id"] for row in place.rows("b", "json")] == list(range(200))


def test_sd_03_a_stop_in_the_middle_of_bounded_work_ends_it_early_and_it_goes_on_later(
    new_place: MakeWorkspace,
) -> None:
    # Slow enough that a busy machine does not come to its end before it is stopped; then as fast as it can.
    pipeline = """\
sources:
  rows: {type: generator, rows: 40000, rate: 1000, primary_key: id, columns: {id: id}}
sinks:
  files: {type: file, from: rows, path: out, format: parquet, batch_size: 200}
"""
    place = new_place().write(pipeline)
    running = place.start_warm()
    running.until_epochs(2)
    stopped = running.stop().succeeded()
    ids = [row["id"] for row in place.rows("out", "parquet")]
    assert 0 < len(ids) < 40000 and ids == list(range(len(ids)))
    assert "SIGTERM received" in stopped.stderr
    place.write(pipeline.replace("rate: 1000, ", "")).run().succeeded()
    assert [row["id"] for row in place.rows("out", "parquet")] == list(range(40000))


def test_ad_12_a_configuration_file_that_is_not_there_is_named(place: Workspace) -> None:
    assert "nothere.yaml" in place.run("--config", "nothere.yaml").failed().stderr


def test_ad_13_and_14_several_errors_and_a_circle_stand_in_one_report(new_place: MakeWorkspace) -> None:
    place = new_place().write(
        """\
sources:
  rows: {type: generator, primary_key: nope, columns: {id: id}}
transforms:
  one: {type: sql, primary_key: id, sql: SELECT id FROM two}
  two: {type: sql, primary_key: id, sql: SELECT id FROM one}
sinks:
  a: {type: print, from: rows, colour: red}
  b: {type: file, from: one, format: json}
"""
    )
    finished = place.run("--validate")
    report = json.loads(finished.stdout)
    assert finished.code == 1 and report["is_valid"] is False
    together = "\n".join(report["errors"])
    for expected in ("unknown field", "colour", "path", "nope", "one", "two"):
        assert expected in together
    assert "Traceback" not in finished.stderr
