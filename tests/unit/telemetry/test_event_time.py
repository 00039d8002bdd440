"""Event times of batches: which values count, and in which unit."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

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


def test_lags_are_put_into_buckets_and_add_up() -> None:
    now = time.time_ns() // 1_000_000
    found = measure([now - 10, now + 60_000, now - 40_000], pa.int64(), "ms") + measure(
        [now - 40_000], pa.int64(), "ms"
    )
    assert (found.lag.buckets[0], found.lag.buckets[8], found.lag.count) == (2, 2, 4)
    assert 80_000 <= found.lag.sum <= 95_000
    assert found.watermark_ms == now + 60_000
