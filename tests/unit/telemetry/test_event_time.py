"""Event times of batches: which values count, and in which unit."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from streamling.connector import Source, kinds
from streamling.engine.data.reading import read_event_time
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from streamling.telemetry.event_time import EventTimeColumn, EventTimes

LARGE = (1 << 63) - 1


def measure(values: list[Any], type_: pa.DataType, unit: str = "") -> EventTimes:
    return EventTimeColumn("at", unit).measure(pa.record_batch([pa.array(values, type_)], ["at"]))


@pytest.mark.parametrize(
    ("values", "type_", "unit", "watermark", "count"),
    [
        ([1001, 1010, None, -1], pa.int64(), "s", 1_010_000, 2),
        ([LARGE, 5], pa.int64(), "s", 5_000, 1),
        ([1999, None], pa.int64(), "us", 1, 1),
        ([7], pa.int64(), "ms", 7, 1),
        ([(1 << 64) - 1, 7], pa.uint64(), "ms", 7, 1),
        ([8], pa.decimal128(20, 0), "ms", 8, 1),
        ([datetime(1970, 1, 1, 0, 0, 1, 999, UTC)], pa.timestamp("us", "UTC"), "", 1000, 1),
        ([1_999_999], pa.timestamp("ns"), "", 1, 1),
        ([None, -5], pa.int64(), "ms", None, 0),
        ([], pa.int64(), "ms", None, 0),
    ],
)
def test_null_negative_and_overflowing_values_are_ignored(
    values: list[Any], type_: pa.DataType, unit: str, watermark: int | None, count: int
) -> None:
    found = measure(values, type_, unit)
    assert (found.watermark_ms, found.lag.count) == (watermark, count)


def test_a_column_that_spark_computes_is_not_measured_where_it_is_read() -> None:
    """The reader of a generator gives the number of the row, also under the name of a column that is computed of it."""
    columns = "columns: {id: id + 1700000000}, telemetry: {event_time: {column: id, unit: seconds}}"
    for text, column in ((columns, None), (columns.replace("id + 1700000000", "id"), EventTimeColumn("id", "s"))):
        (node,) = load_pipeline(f"sources: {{s: {{type: generator, {text}}}}}", "p.yaml", kinds.kinds()).nodes
        source = kinds.build(node, Settings())
        assert isinstance(source, Source)
        assert read_event_time(node, source) == column


def test_lags_are_put_into_buckets_and_add_up() -> None:
    now = time.time_ns() // 1_000_000
    found = measure([now - 10, now + 60_000, now - 40_000], pa.int64(), "ms") + measure(
        [now - 40_000], pa.int64(), "ms"
    )
    assert (found.lag.buckets[0], found.lag.buckets[8], found.lag.count) == (2, 2, 4)
    assert 80_000 <= found.lag.sum <= 95_000
    assert found.watermark_ms == now + 60_000
