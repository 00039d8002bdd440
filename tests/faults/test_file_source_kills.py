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
LARGE = {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 50_000}
SINKS = """\
sinks:
  parquet: {type: file, from: chosen, path: parquet, format: parquet}
  json: {type: file, from: chosen, path: json, format: json}
"""


def prepared(place: Workspace, *formats: str, rows: int = ROWS) -> Workspace:
    """A pipeline that reads so many rows of each format, from files in the middle of which epochs end."""
    sources, queries = "sources:\n", []
    for format_ in formats:
        directory = place.directory / f"in-{format_}"
        directory.mkdir()
        for number in range(FILES):
            numbers = range(number * (rows // FILES), (number + 1) * (rows // FILES))
            names = [f"{format_}\n{n}" for n in numbers]
            write(directory / f"{number}.{format_}", format_, pa.table({"id": list(numbers), "name": names}))
        sources += (
            f"  {format_}_rows: {{type: file, path: {directory.name}, format: {format_}, mode: {{type: bounded}}}}\n"
        )
        queries.append(f"SELECT id, upper(name) AS name FROM {format_}_rows WHERE id % 4 <> 1")
    chosen = f"transforms:\n  chosen: {{type: sql, primary_key: name, sql: {' UNION ALL '.join(queries)!r}}}\n"
    return place.write(sources + chosen + SINKS)


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


def assert_exact(place: Workspace, *formats: str, rows: int = ROWS) -> None:
    owed = sorted((n, f"{format_}\n{n}".upper()) for format_ in formats for n in range(rows) if n % 4 != 1)
    for sink in ("parquet", "json"):
        assert sorted((row["id"], row["name"]) for row in place.rows(sink, sink)) == owed


def test_kills_in_the_middle_of_files_leave_each_row_once(place: Workspace) -> None:
    formats = ("csv", "parquet", "avro")
    prepared(place, *formats)
    for point in ("after-record@1", "after-write:json@2", "after-commit:parquet@3", "before-finalize@2"):
        killed = place.run(environment={VARIABLE: point}, **SMALL)
        assert killed.code == -signal.SIGKILL, killed.stderr
    place.run(**SMALL).succeeded()
    assert_exact(place, *formats)


def test_a_kill_while_executors_read_leaves_each_row_once(place: Workspace) -> None:
    formats = ("csv", "parquet")
    prepared(place, *formats, rows=60_000)
    killed = place.run(environment={VARIABLE: "after-commit:parquet@2"}, **LARGE)
    assert killed.code == -signal.SIGKILL, killed.stderr
    place.run(**LARGE).succeeded()
    assert_exact(place, *formats, rows=60_000)


def test_a_file_rewritten_between_record_and_replay_is_refused(place: Workspace) -> None:
    prepared(place, "csv")
    killed = place.run(environment={VARIABLE: "after-commit:parquet@2"}, **SMALL)
    assert killed.code == -signal.SIGKILL, killed.stderr
    file = place.directory / "in-csv" / "0.csv"
    kept, times = file.read_bytes(), file.stat()
    file.write_bytes(kept.replace(b"csv", b"CSV"))
    failed = place.run(**SMALL).failed()
    assert "FILE_CHANGED" in failed.stderr
    assert "0.csv" in failed.stderr
    file.write_bytes(kept)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    place.run(**SMALL).succeeded()  # as the message says: with the old content back it goes on
    assert_exact(place, "csv")
