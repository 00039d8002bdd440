"""A pipeline that reads files and is killed: each row of the files is in both sinks once, or the run says why not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from harness import Workspace

from streamling.testing.crash import VARIABLE

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS, FILES = 900, 3
SMALL = {"EPOCH__ROWS": 100}
LARGE = {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 25_000}
PIPELINE = """\
sources:
  numbers: {{type: file, path: in, format: {format_}, mode: {{type: bounded}}, primary_key: id}}
transforms:
  chosen: {{type: sql, primary_key: id, sql: "SELECT id, upper(name) AS name FROM numbers WHERE id % 4 <> 1"}}
sinks:
  parquet: {{type: file, from: chosen, path: parquet, format: parquet}}
  json: {{type: file, from: chosen, path: json, format: json}}
"""


def prepared(place: Workspace, format_: str, rows: int = ROWS) -> Workspace:
    """Files whose epochs end in the middle of them, and the pipeline that reads them."""
    for number in range(FILES):
        first = number * (rows // FILES)
        numbers = list(range(first, first + rows // FILES))
        path = place.directory / "in" / f"{number}.{format_}"
        path.parent.mkdir(exist_ok=True)
        write(path, format_, pa.table({"id": numbers, "name": [f"line\n{n}" for n in numbers]}))
    return place.write(PIPELINE.format(format_=format_))


def write(path: Path, format_: str, table: pa.Table) -> None:
    match format_:
        case "csv":
            pa.csv.write_csv(table, path)
        case "parquet":
            pa.parquet.write_table(table, path, row_group_size=130)
        case "avro":
            fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
            with path.open("wb") as file:
                schema = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
                fastavro.writer(file, schema, table.to_pylist(), sync_interval=500)


def assert_exact(place: Workspace, rows: int = ROWS) -> None:
    owed = [(n, f"LINE\n{n}") for n in range(rows) if n % 4 != 1]
    for format_ in ("parquet", "json"):
        assert sorted((row["id"], row["name"]) for row in place.rows(format_, format_)) == owed


@pytest.mark.parametrize(
    ("format_", "points"),
    [
        ("csv", ("after-record@1", "after-commit:parquet@3")),
        ("parquet", ("after-write:json@1", "before-finalize@3")),
        ("avro", ("before-commit:json@2", "after-finalize@2")),
    ],
)
def test_a_kill_in_the_middle_of_a_file_leaves_each_row_once(
    place: Workspace, format_: str, points: tuple[str, ...]
) -> None:
    prepared(place, format_)
    for point in points:
        killed = place.run(environment={VARIABLE: point}, **SMALL)
        assert killed.code == -signal.SIGKILL, killed.stderr
    place.run(**SMALL).succeeded()
    assert_exact(place)


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_kill_while_executors_read_leaves_each_row_once(place: Workspace, format_: str) -> None:
    prepared(place, format_, 60_000)
    killed = place.run(environment={VARIABLE: "after-commit:parquet@2"}, **LARGE)
    assert killed.code == -signal.SIGKILL, killed.stderr
    place.run(**LARGE).succeeded()
    assert_exact(place, 60_000)


def test_a_file_rewritten_between_record_and_replay_is_refused(place: Workspace) -> None:
    prepared(place, "csv")
    killed = place.run(environment={VARIABLE: "after-commit:parquet@2"}, **SMALL)
    assert killed.code == -signal.SIGKILL, killed.stderr
    file = place.directory / "in" / "0.csv"
    kept, times = file.read_bytes(), file.stat()
    file.write_bytes(kept.replace(b"line", b"LINE"))
    failed = place.run(**SMALL).failed()
    assert "FILE_CHANGED" in failed.stderr
    assert "0.csv" in failed.stderr
    file.write_bytes(kept)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    place.run(**SMALL).succeeded()  # as the message says: with the old content back it goes on
    assert_exact(place)
