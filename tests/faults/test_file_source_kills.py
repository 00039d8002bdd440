"""A pipeline that reads files and is killed: each row of the files is in both sinks once, or the run says why not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from streamling.testing.crash import VARIABLE
from support.harness import Workspace

pytestmark = pytest.mark.faults

FILES, FORMATS = 3, ("csv", "parquet", "avro")
SMALL = {"EPOCH__ROWS": 100}
LARGE = {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 50_000}
SINKS = """\
sinks:
  parquet: {type: file, from: chosen, path: parquet, format: parquet}
  json: {type: file, from: chosen, path: json, format: json}
"""
# Two sinks of each source: one has the rows of an epoch and the other does not.
COPIES = "sinks:\n" + "".join(
    f"  {f}_{sink}: {{type: file, from: {f}_rows, path: {f}-{sink}, format: {sink}}}\n"
    for f in FORMATS
    for sink in ("parquet", "json")
)


def prepared(place: Workspace, rows: int, *, sql: bool) -> None:
    """A pipeline that reads so many rows of each format, from files in the middle of which epochs end."""
    sources, queries = "sources:\n", []
    for format_ in FORMATS:
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
    place.write(sources + (chosen + SINKS if sql else COPIES))


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


def kill(place: Workspace, point: str, settings: dict[str, int], *, spark: bool) -> None:
    killed = place.start(environment={VARIABLE: point}, spark=spark, **settings).wait()
    assert killed.code == -signal.SIGKILL, killed.stderr


def test_kills_in_the_middle_of_files_leave_each_row_once(place: Workspace) -> None:
    rows = 6000
    prepared(place, rows, sql=False)
    kill(place, "after-commit:csv_parquet@2", SMALL, spark=False)
    with rewritten(place.directory / "in-csv" / "0.csv"):
        failed = place.start(spark=False, **SMALL).wait().failed()
        assert "FILE_CHANGED" in failed.stderr
        assert "0.csv" in failed.stderr
    # As the message says: with the old content restored it continues.
    for point in ("after-record@1", "after-write:parquet_json@2", "before-finalize@2", "after-commit:avro_json@1"):
        kill(place, point, SMALL, spark=False)
    place.start(spark=False).wait().succeeded()
    for format_ in FORMATS:
        for sink in ("parquet", "json"):
            found = sorted((row["id"], row["name"]) for row in place.rows(f"{format_}-{sink}", sink))
            assert found == [(n, f"{format_}\n{n}") for n in range(rows)]


@pytest.mark.spark
def test_kills_while_spark_reads_files_leave_each_row_once(place: Workspace) -> None:
    """In an epoch of the driver, then in one that executors read."""
    rows = 60_000
    prepared(place, rows, sql=True)
    kill(place, "after-write:json@2", SMALL, spark=True)
    kill(place, "after-commit:parquet@2", LARGE, spark=True)
    place.run(**LARGE).succeeded()
    owed = sorted((n, f"{format_}\n{n}".upper()) for format_ in FORMATS for n in range(rows) if n % 4 != 1)
    for sink in ("parquet", "json"):
        assert sorted((row["id"], row["name"]) for row in place.rows(sink, sink)) == owed


@contextmanager
def rewritten(file: Path) -> Iterator[None]:
    """The same length, other content."""
    kept, times = file.read_bytes(), file.stat()
    file.write_bytes(kept.replace(b"csv", b"CSV"))
    yield
    file.write_bytes(kept)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
