"""The file source in whole pipelines: what is read, what is read again, what becomes of bad lines, widths, restarts."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.harness import Finished, MakeWorkspace, Row, WarmRun, Workspace, printed

pytestmark = pytest.mark.spark


def put(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def ids(rows: list[Row]) -> list[int]:
    return sorted(row["id"] for row in rows)


# FS-01


def test_a_bounded_csv_source_ends_by_itself_with_inserts_of_inferred_columns(place: Workspace) -> None:
    put(place.directory / "in" / "people.csv", "id,name", "1,alice", "2,bob", "3,carol")
    place.write(
        "sources: {people: {type: file, path: in/, format: csv, mode: {type: bounded}}}\n"
        "sinks: {screen: {type: print, from: people}}\n"
    )
    lines = printed(place.run().succeeded().stdout)
    assert [(operation, row) for _, _, operation, row in lines] == [
        ("Insert", {"id": number, "name": name, "_gs_op": "i"})
        for number, name in ((1, "alice"), (2, "bob"), (3, "carol"))
    ]


# FS-04


def test_an_empty_directory_fails_fast(place: Workspace) -> None:
    (place.directory / "in").mkdir()
    place.write(
        "sources: {nothing: {type: file, path: in/, format: parquet}}\nsinks: {screen: {type: print, from: nothing}}\n"
    )
    assert "no files matched" in place.run().failed().stderr


# FS-03, AD-07 and the widths of PL-01, PL-03, PL-04, PL-06, in one run

WIDTHS = {"one_four": (1, 4), "four_two": (4, 2), "four_one": (4, None), "three_three": (3, 3)}
SAME = [{"id": i, "name": f"n{i}", "price": i / 4, "good": i % 2 == 0, "tags": ["a", str(i)]} for i in range(6)]


def many_sources() -> str:
    lines = ["sources:"]
    for name, (width, _) in WIDTHS.items():
        lines.append(
            f"  {name}: {{type: file, path: {name}, format: csv, mode: {{type: bounded}}, parallelism: {width}}}"
        )
    lines.append("  days: {type: file, path: days, format: csv, mode: {type: bounded}}")
    for format_ in ("parquet", "json"):
        lines.append(f"  same_{format_}: {{type: file, path: same, format: {format_}, mode: {{type: bounded}}}}")
    lines.append("transforms:")
    for name, (_, width) in WIDTHS.items():
        if width is not None:
            lines.append(
                f"  {name}_all: {{type: sql, primary_key: id, parallelism: {width}, sql: SELECT * FROM {name}}}"
            )
    lines.append("sinks:")
    for name, (_, width) in WIDTHS.items():
        of = f"{name}_all" if width else name
        lines.append(f"  {name}_out: {{type: file, from: {of}, path: out/{name}, format: json, parallelism: 1}}")
    for name in ("days", "same_parquet", "same_json"):
        lines.append(f"  {name}_out: {{type: file, from: {name}, path: out/{name}, format: json}}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def many(new_place: MakeWorkspace) -> Workspace:
    place = new_place()
    for name in WIDTHS:
        for file in range(3 if name == "three_three" else 4):
            put(place.directory / name / f"{file}.csv", "id", *(str(file * 3 + n) for n in (1, 2, 3)))
    put(place.directory / "days" / "dt=2024-01-01" / "a.csv", "id", "1", "2")
    put(place.directory / "days" / "dt=2024-01-02" / "a.csv", "id", "3")
    put(place.directory / "same" / "a.json", *(json.dumps(row) for row in SAME))
    pq.write_table(pa.Table.from_pylist(SAME), place.directory / "same" / "a.parquet")
    place.write(many_sources()).run().succeeded()
    return place


@pytest.mark.parametrize("name", WIDTHS)
def test_every_row_comes_once_whatever_the_widths_of_source_and_transform(many: Workspace, name: str) -> None:
    assert ids(many.rows(f"out/{name}", "json")) == list(range(1, 10 if name == "three_three" else 13))


def test_hive_directories_become_columns(many: Workspace) -> None:
    rows = many.rows("out/days", "json")
    assert [(row["id"], str(row["dt"])[:10]) for row in rows] == [
        (1, "2024-01-01"),
        (2, "2024-01-01"),
        (3, "2024-01-02"),
    ]


def test_parquet_and_json_lines_with_the_same_rows_give_the_same(many: Workspace) -> None:
    assert many.rows("out/same_parquet", "json") == many.rows("out/same_json", "json")
    assert many.rows("out/same_json", "json") == [{**row, "_gs_op": "i"} for row in SAME]


# AD-05, AD-06

CONTINUOUS = """\
sources: {events: {type: file, path: in, format: csv, mode: {type: continuous, poll_interval: 200ms}}}
sinks: {out: {type: file, from: events, path: out, format: json, batch_flush_interval: 100ms}}
"""


def old(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def until_rows(place: Workspace, child: WarmRun, count: int) -> list[Row]:
    child.until(lambda: len(place.rows("out", "json")) >= count, f"{count} rows")
    return place.rows("out", "json")


def test_a_continuous_source_goes_on_after_a_restart_and_reads_changed_and_late_files(place: Workspace) -> None:
    put(place.directory / "in" / "a.csv", "id", "1", "2")
    put(place.directory / "in" / "b.csv", "id", "3")
    place.write(CONTINUOUS)
    child = place.start_warm()
    assert ids(until_rows(place, child, 3)) == [1, 2, 3]
    child.until(lambda: child.epochs, "a finalized epoch")
    child.stop().succeeded()
    old(put(place.directory / "in" / "0.csv", "id", "10"), 1_600_000_000)  # long before all others
    put(place.directory / "in" / "c.csv", "id", "4")
    child = place.start_warm()
    assert ids(until_rows(place, child, 5)) == [1, 2, 3, 4, 10]
    time.sleep(1.1)
    put(place.directory / "in" / "a.csv", "id", "7", "8", "9")
    assert ids(until_rows(place, child, 8)) == [1, 2, 3, 4, 7, 8, 9, 10]
    child.stop().succeeded()
    stored = json.loads(place.run("state", "show", "events:watermark").succeeded().stdout)["value"]
    assert set(stored) >= {"last_modified_ms", "boundary_paths", "committed_ahead"}


# Bad lines

BAD = """\
sources:
  events:
    type: file
    path: in/*.csv
    format: csv
    mode: {{type: bounded}}
    {on_error}
sinks: {{out: {{type: file, from: events, path: out, format: json}}}}
"""


def bad_lines(place: Workspace, on_error: str) -> Workspace:
    put(place.directory / "in" / "0.csv", "id,name", *(f"{i},n" for i in range(1, 31)))
    put(place.directory / "in" / "1.csv", "id,name", *(f"{i},n" for i in range(31, 40)), "forty,n", "41", "42,n")
    return place.write(BAD.format(on_error=on_error))


def test_a_bad_line_ends_the_run_and_is_named(place: Workspace) -> None:
    failed: Finished = bad_lines(place, "primary_key: id").run().failed()
    assert "DATA_ERROR" in failed.stderr
    told = " ".join(failed.stderr.split())
    assert "1.csv', row 10" in told
    assert "'forty' is not a valid int64" in told


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_bad_lines_become_letters_and_the_others_are_delivered(place: Workspace, driver_rows: int) -> None:
    letters = "on_error: dead_letter\n    dead_letter: {type: file, path: letters}"
    bad_lines(place, letters).run(EPOCH__DRIVER_ROWS=driver_rows).succeeded()
    assert ids(place.rows("out", "json")) == [*range(1, 40), 42]
    found = [json.loads(line) for file in (place.directory / "letters").glob("*.jsonl") for line in file.open()]
    assert sorted((one["source"]["row"], one["reason_code"]) for one in found) == [
        (10, "schema_mismatch"),
        (11, "decode_error"),
    ]


def test_bad_lines_can_be_skipped(place: Workspace) -> None:
    finished = bad_lines(place, "on_error: skip").run().succeeded()
    assert ids(place.rows("out", "json")) == [*range(1, 40), 42]
    assert "skipped" in finished.stderr
