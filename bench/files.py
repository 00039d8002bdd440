"""Bounded files through a query into Parquet files, beside plain PySpark doing the same, start included.

`STREAMLING_BENCH_FILES_MB` is the size of each file, 100 unless told. They are kept in the cache directory of the user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from bench.figure import Figure
from bench.processes import cache, pipeline, watched

_BAR = 0.7
_ROWS_AT_ONCE = 200_000
_MEMORY = "1g"
_QUERY = "SELECT id, upper(customer) AS customer, amount * 2 AS doubled, at FROM orders WHERE amount < 500"
_PIPELINE = """\
sources:
  orders: {{type: file, path: {path}, format: {format_}, mode: {{type: bounded}}, primary_key: id}}
transforms:
  kept: {{type: sql, primary_key: id, sql: "{query}"}}
sinks:
  out: {{type: file, from: kept, path: {out}, format: parquet}}
"""


@dataclass(frozen=True, slots=True)
class _Run:
    seconds: float
    rss_mb: float


def files() -> Iterator[Figure]:
    """Rows per second of whole runs, by format."""
    megabytes = int(os.environ.get("STREAMLING_BENCH_FILES_MB", "100"))
    for format_ in ("csv", "parquet"):
        path = sample(megabytes, format_)
        ours, kept = run_ours(path, format_)
        plain, expected = _plain(path, format_)
        if kept != expected:
            raise RuntimeError(f"{kept} rows instead of {expected}")
        rows = _rows_of(path, format_)
        ratio = plain.seconds / ours.seconds
        compared = f"{ratio:.2f} x plain PySpark ({rows / plain.seconds:,.0f})"
        memory = f"{ours.rss_mb:,.0f} MB, plain {plain.rss_mb:,.0f} MB"
        yield Figure(
            f"rows per second, {format_} of {megabytes} MB",
            f"{rows / ours.seconds:,.0f}",
            f"{compared}; {memory}",
            f">= {_BAR} x",
            ratio >= _BAR,
        )


def run_ours(path: Path, format_: str) -> tuple[_Run, int]:
    with tempfile.TemporaryDirectory(prefix="streamling-files-") as directory:
        out = Path(directory, "out")
        text = _PIPELINE.format(path=json.dumps(str(path)), format_=format_, query=_QUERY, out=json.dumps(str(out)))
        began = time.monotonic()
        with pipeline(text, {"SPARK__DRIVER__MEMORY": _MEMORY}) as (process, log), watched(process.pid) as usage:
            process.communicate(timeout=1800)
            if process.returncode:
                raise RuntimeError(log.read_text()[-4000:])
        return _Run(time.monotonic() - began, usage.rss_bytes / 1e6), _rows_in(out)


def _plain(path: Path, format_: str) -> tuple[_Run, int]:
    script = Path(__file__).parent / "plain" / "files.py"
    with tempfile.TemporaryDirectory(prefix="streamling-files-") as directory:
        out = Path(directory, "out")
        began = time.monotonic()
        command = [sys.executable, str(script), format_, str(path), str(out), _QUERY, _MEMORY]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process, watched(process.pid) as usage:
            if process.wait(1800):
                raise RuntimeError("the plain script failed")
        return _Run(time.monotonic() - began, usage.rss_bytes / 1e6), _rows_in(out)


def _rows_in(directory: Path) -> int:
    return int(pyarrow.dataset.dataset([str(p) for p in directory.glob("*.parquet")]).count_rows())


def sample(megabytes: int, format_: str) -> Path:
    """The file of a size and format, made once."""
    path = cache() / f"orders-{megabytes}.{format_}"
    if not path.exists():
        made = path.with_suffix(".making")
        _make(made, megabytes << 20, format_)
        made.rename(path)
    return path


def _make(path: Path, size: int, format_: str) -> None:
    """As many rows as make a file of about that size."""
    with path.open("wb") as file:
        first = _table(0)
        csv = format_ == "csv"
        writer = pa.csv.CSVWriter(file, first.schema) if csv else pa.parquet.ParquetWriter(file, first.schema)
        with writer:
            start = 0
            while file.tell() < size:
                writer.write_table(_table(start))
                start += _ROWS_AT_ONCE


def _table(start: int) -> pa.Table:
    ids = pa.arange(start, start + _ROWS_AT_ONCE)
    mixed = ids.to_numpy() * 7919
    return pa.table(
        {
            "id": ids,
            "customer": pc.binary_join_element_wise("customer", pa.array(mixed % 100_003).cast(pa.string()), "-"),
            "amount": pa.array(mixed % 100_000 / 100),
            "at": pa.array(ids.to_numpy() + 1_700_000_000).cast(pa.timestamp("s")),
            "note": pc.binary_join_element_wise("order", ids.cast(pa.string()), "of the day", " "),
        }
    )


def _rows_of(path: Path, format_: str) -> int:
    if format_ == "parquet":
        return int(pa.parquet.ParquetFile(path).metadata.num_rows)
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 24), b"")) - 1
