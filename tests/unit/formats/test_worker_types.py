"""Rows of every type leave a Python worker as they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamling.formats.arrow import arrow_schema
from streamling.formats.worker_types import to_worker, worker_schema
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DATE64,
    DURATION,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    I256,
    INT8,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    STRING,
    TIME32,
    TIME64,
    TIMESTAMP,
    TIMESTAMP_UTC,
    U256,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)
from support.spark_session import spark_session

LATE, EARLY = time(23, 59, 59, 999999), time(0, 0, 0, 1)
MOMENT = datetime(2026, 11, 17, 1, 2, 3, 456789, tzinfo=UTC)
VALUES: list[tuple[DataType, list[Any]]] = [
    (BOOLEAN, [True, False]),
    (INT8, [-128, 127]),
    (INT16, [-(2**15), 2**15 - 1]),
    (INT32, [-(2**31), 2**31 - 1]),
    (INT64, [-(2**63), 2**63 - 1]),
    (UINT8, [0, 255]),
    (UINT16, [0, 2**16 - 1]),
    (UINT32, [0, 2**32 - 1]),
    (UINT64, [0, 2**64 - 1]),
    (FLOAT16, [1.5, -0.25]),
    (FLOAT32, [1.5, float("inf")]),
    (FLOAT64, [0.1, -0.0]),
    (STRING, ["", "ü\0"]),
    (BINARY, [b"", b"\xff\0"]),
    (DataType("binary", length=2), [b"ab", b"\0\1"]),
    (DATE, [date(1, 1, 1), date(9999, 12, 31)]),
    (DATE64, [date(1969, 12, 31), date(2026, 11, 17)]),
    (TIME32, [time(0), time(23, 59, 59)]),
    (TIME64, [EARLY, LATE]),
    (TIMESTAMP, [MOMENT.replace(tzinfo=None), None]),
    (TIMESTAMP_UTC, [MOMENT, datetime(1969, 12, 31, tzinfo=UTC)]),
    (DataType("timestamp", unit="ms", zone="UTC"), [MOMENT] * 2),
    (DURATION, [timedelta(days=-1, microseconds=1), timedelta(days=400)]),
    (INTERVAL, ["P1M", "P2DT3H"]),
    (decimal(38, 9), [Decimal("-1.000000001"), Decimal(10) ** 28]),
    (decimal(60, 2), ["1" * 58 + ".00", "-0.01"]),
    (decimal_arb(10, 2), ["1.50", "2"]),
    (U256, ["0", str(2**256 - 1)]),
    (I256, [str(-(2**255)), "7"]),
    (list_of(INT64), [[], [1, None]]),
    (list_of(TIME64), [[], [EARLY, None, LATE]]),
    (list_of(list_of(TIME32)), [[[time(1)], None], [[]]]),
    (map_of(TIME64), [[("a", LATE), ("b", None)], []]),
    (map_of(STRING, TIME64), [[(LATE, "x")], []]),
    (struct_of(Field("at", TIME64), Field("x", STRING)), [{"at": LATE, "x": None}, {"at": None, "x": "y"}]),
    (struct_of(Field("at", TIME64, nullable=False)), [{"at": EARLY}, {"at": LATE}]),
    (list_of(struct_of(Field("at", TIME64))), [[{"at": EARLY}, None], [{"at": None}]]),
    (map_of(list_of(struct_of(Field("at", TIME64)))), [[("k", [{"at": LATE}])], []]),
]
SCHEMA = Schema(tuple(Field(f"c{number}", type_) for number, (type_, _) in enumerate(VALUES)))


def batch() -> pa.RecordBatch:
    """A row of one value, a row of the other, a row of nulls."""
    schema = arrow_schema(SCHEMA)
    columns = [pa.array([*values, None], field.type) for (_, values), field in zip(VALUES, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def test_without_times_nothing_is_touched() -> None:
    schema = arrow_schema(Schema(tuple(f for f in SCHEMA if f.type in (INT64, STRING, DATE, TIMESTAMP))))
    rows = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names)], schema)
    assert worker_schema(schema) is schema
    assert to_worker(rows, worker_schema(schema)) is rows


def test_times_are_nanoseconds_wherever_they_stand() -> None:
    given = batch()
    turned = to_worker(given, worker_schema(given.schema))
    assert turned.to_pylist() == given.to_pylist()
    assert "time64[us]" not in turned.schema.to_string()
    turned.validate(full=True)


def test_columns_beside_a_time_are_not_copied() -> None:
    schema = arrow_schema(Schema((Field("text", STRING), Field("at", TIME64, nullable=False))))
    given = pa.RecordBatch.from_pylist([{"text": "x" * 100, "at": LATE}], schema)
    turned = to_worker(given, worker_schema(schema))
    assert turned.column("text").buffers()[2].address == given.column("text").buffers()[2].address
    assert not turned.schema.field("at").nullable


@pytest.fixture
def spark() -> Iterator[Any]:
    with spark_session({"spark.master": "local[1]"}) as session:
        yield session


@pytest.mark.spark
def test_every_type_leaves_a_worker_as_it_leaves_the_driver(spark: Any) -> None:
    given = batch()
    ddl = ", ".join(f"{field.name} {spark_type(field.type)}" for field in SCHEMA)
    turned = to_worker(given, worker_schema(given.schema))

    def read(rows: Iterator[Any]) -> Iterator[Any]:
        for _ in rows:
            yield turned

    from_worker = spark.range(1).mapInArrow(read, ddl).toArrow()
    from_driver = spark.createDataFrame(pa.Table.from_batches([given]), ddl).toArrow()
    assert from_worker.schema == from_driver.schema
    for (type_, _), mine, other in zip(VALUES, from_worker.columns, from_driver.columns, strict=True):
        assert mine.equals(other), type_
    assert from_worker.to_pylist() == given.to_pylist()
