"""A transform of a plugin over millions of rows: where the rows are, and in the driver."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from bench.figure import Figure
from bench.processes import Epoch, epochs, pipeline, watched

_PIPELINE = """\
sources:
  orders:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, customer: "concat('c-', id % 1000)", amount: "round(random() * 100, 2)"}}
transforms:
  priced: {{type: price, from: orders}}
sinks:
  out: {{type: blackhole, from: priced}}
"""
_PLUGIN = """\
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import TransformPlugin, register_transform


@register_transform("price")
class Price(TransformPlugin):
    stateless = {stateless}

    def output_schema(self):
        return self.context.input_schema

    def process_batch(self, batch):
        names = batch.schema.names
        dear = pc.multiply(batch.column("amount"), 1.19)
        masked = [sha256(text.encode()).hexdigest()[:12] for text in batch.column("customer").to_pylist()]
        columns = [{{"amount": dear, "customer": pa.array(masked)}}.get(name, batch.column(name)) for name in names]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
"""


def transform(rows: int = 2_000_000) -> Iterator[Figure]:
    """Rows per second of a run, without its first quarter."""
    (there, there_mb), (here, here_mb) = transform_rate(rows, stateless=True), transform_rate(rows, stateless=False)
    yield Figure(
        "transform where the rows are",
        f"{there:,.0f} rows/s",
        f"{there / here:.2f} x in the driver ({here:,.0f})",
        ">= 1.0 x",
        there >= here,
    )
    yield Figure(
        "transform, memory of all processes",
        f"{there_mb:.0f} MB",
        f"{there_mb / here_mb:.2f} x in the driver ({here_mb:.0f} MB)",
        "<= 2 GB",
        there_mb <= 2000,
    )


def transform_rate(rows: int, *, stateless: bool) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="streamling-transform-") as directory:
        plugin = Path(directory, "price.py")
        plugin.write_text(_PLUGIN.format(stateless=stateless))
        settings = {"PLUGIN__PATH": str(plugin), "STATE_BACKEND__BACKEND_TYPE": "InMemory", "EPOCH__ROWS": "500000"}
        with pipeline(_PIPELINE.format(rows=rows), settings) as (process, log), watched(process.pid) as usage:
            process.communicate(timeout=600)
            found = epochs(log)
    return _steady(found, rows // 4), usage.rss_bytes / 1e6


def _steady(found: Sequence[Epoch], skipped: int) -> float:
    """Rows per second once so many rows are through."""
    through = list(accumulate(epoch.rows for epoch in found))
    first = next(index for index, rows in enumerate(through) if rows >= skipped)
    return (through[-1] - through[first]) / (found[-1].at - found[first].at)
