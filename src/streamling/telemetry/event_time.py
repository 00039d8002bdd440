"""Event time: the times in a column of a node's rows, measured where the rows are.

Null, negative and overflowing values are ignored; finer units are rounded down to milliseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamling.plan.types import Schema
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import EventTimeUnit
from streamling.telemetry.buckets import BucketCounts, bucket_counts
from streamling.telemetry.catalog import BOUNDS_MS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, Row

_INT64_MAX = (1 << 63) - 1
# How many of a unit are a millisecond; seconds are multiplied instead.
_PER_MS = {"s": 0, "ms": 1, "us": 1000, "ns": 1_000_000}
_UNITS = {EventTimeUnit.SECONDS: "s", EventTimeUnit.MILLISECONDS: "ms", EventTimeUnit.MICROSECONDS: "us"}


@dataclass(frozen=True, slots=True)
class EventTimes:
    """What is known of the event times of some rows."""

    watermark_ms: int | None = None
    """The greatest one."""
    lag: BucketCounts = field(default_factory=BucketCounts)
    """Now minus the event time, per row."""

    def __add__(self, other: EventTimes) -> EventTimes:
        known = [one for one in (self.watermark_ms, other.watermark_ms) if one is not None]
        return EventTimes(max(known, default=None), self.lag + other.lag)


@dataclass(frozen=True, slots=True)
class EventTimeColumn:
    """Picklable: executors measure too."""

    name: str
    unit: str
    """Of an integer column."""

    def measure(self, rows: pa.RecordBatch | pa.Table) -> EventTimes:
        import numpy as np

        times = self._milliseconds(rows)
        if not len(times):
            return EventTimes()
        lags = np.maximum(time.time_ns() // 1_000_000 - times, 0)
        buckets = np.bincount(np.searchsorted(BOUNDS_MS, lags, side="left"), minlength=len(BOUNDS_MS) + 1)
        return EventTimes(int(times.max()), bucket_counts(buckets.tolist(), float(lags.sum(dtype=np.float64))))

    def _milliseconds(self, rows: pa.RecordBatch | pa.Table) -> NDArray[np.int64]:
        import pyarrow as pa
        import pyarrow.compute as pc

        column, unit = rows.column(self.name), self.unit
        if pa.types.is_timestamp(column.type):
            unit = column.type.unit
            column = column.cast(pa.int64())
        elif not pa.types.is_int64(column.type):  # unsigned, or a decimal that stands for it
            fits = pc.less_equal(column, pa.scalar(_INT64_MAX, pa.uint64()).cast(column.type))
            column = pc.filter(column, fits).cast(pa.int64())
        values: NDArray[np.int64] = column.drop_null().to_numpy()
        values = values[values >= 0]
        if unit == "s":
            return values[values <= _INT64_MAX // 1000] * 1000
        return values // _PER_MS[unit]

    def aggregates(self, is_timestamp: bool) -> list[Column]:
        """The same as aggregates of Spark, for rows that stay in Java; `from_row` reads the result."""
        from pyspark.sql import functions as f

        # Whole numbers from the first step to the last: a value that overflows is an error, which would end the run.
        column, greatest = f"`{self.name.replace('`', '``')}`", _INT64_MAX
        if is_timestamp:
            column, in_ms = f"unix_micros(CAST({column} AS TIMESTAMP))", "DIV 1000"
        elif self.unit == "s":
            greatest, in_ms = _INT64_MAX // 1000, "* 1000"
        else:
            in_ms = f"DIV {_PER_MS[self.unit]}"
        times = f.expr(f"CASE WHEN {column} BETWEEN 0 AND {greatest} THEN CAST({column} AS BIGINT) {in_ms} END")
        # `greatest` skips nulls: values that are ignored would have a lag of 0.
        lag = f.when(times.isNotNull(), f.greatest(f.lit(time.time_ns() // 1_000_000) - times, f.lit(0)))
        bounds = (-1, *BOUNDS_MS)
        counts = [f.count(f.when((lag > low) & (lag <= high), 1)) for low, high in pairwise(bounds)]
        counts.append(f.count(f.when(lag > BOUNDS_MS[-1], 1)))
        named = [count.alias(f"bucket_{number}") for number, count in enumerate(counts)]
        return [f.max(times).alias("watermark"), f.sum(lag.cast("double")).alias("sum"), *named]


def from_row(row: Row | Any) -> EventTimes:
    """Reads the aggregates, from Python or from Java."""
    values = [row.get(index) for index in range(len(BOUNDS_MS) + 3)]
    watermark, total, *buckets = values
    return EventTimes(None if watermark is None else int(watermark), bucket_counts(buckets, total or 0.0))


def event_time_of(node: NodeSpec, columns: Schema) -> EventTimeColumn | None:
    """None if the node has no event time, or a column that cannot be used: planning has warned about it."""
    options = node.options.telemetry.event_time
    column = next((field for field in columns if options is not None and field.name == options.column), None)
    if options is None or column is None or column.type.kind not in ("int64", "uint64", "timestamp"):
        return None
    if column.type.kind == "timestamp":
        return EventTimeColumn(column.name, "")
    return EventTimeColumn(column.name, _UNITS[options.unit]) if options.unit is not None else None
