"""Rows on their way to plugins and back: types mean the same on both sides."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from streamling.errors import PermanentError
from streamling.formats.arrow import arrow_schema
from streamling.formats.exchange import columns_of, exchange_schema, from_plugin, to_plugin
from streamling.plan.types import (
    DATE64,
    FLOAT16,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIME32,
    U256,
    UINT8,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
    struct_of,
)

LOGICAL = Schema(
    (
        Field("u8", UINT8),
        Field("u64", UINT64),
        Field("f16", FLOAT16),
        Field("day", DATE64),
        Field("hour", TIME32),
        Field("ms", DataType("timestamp", unit="ms")),
        Field("fixed", DataType("binary", length=2)),
        Field("list", list_of(UINT64)),
        Field("struct", struct_of(Field("x", UINT8))),
        Field("wide", decimal(50, 2)),
        Field("u256", U256),
        OPERATION_FIELD,
    )
)
ROW = {
    "u8": 255,
    "u64": Decimal(2**64 - 1),
    "f16": 1.5,
    "day": date(2026, 1, 2),
    "hour": time(1, 2, 3),
    "ms": datetime.fromisoformat("2026-01-02T03:04:05.006"),
    "fixed": b"ab",
    "list": [Decimal(7), None],
    "struct": {"x": 3},
    "wide": "1.50",
    "u256": str(2**200),
    "_gs_op": "i",
}


def test_plugins_see_the_types_that_values_mean() -> None:
    types = {field.name: field.type for field in exchange_schema(LOGICAL)}
    assert types == {
        "u8": pa.uint8(),
        "u64": pa.uint64(),
        "f16": pa.float16(),
        "day": pa.date64(),
        "hour": pa.time32("ms"),
        "ms": pa.timestamp("ms"),
        "fixed": pa.binary(2),
        "list": pa.list_(pa.uint64()),
        "struct": pa.struct([("x", pa.uint8())]),
        "wide": pa.string(),
        "u256": pa.string(),
        "_gs_op": pa.string(),
    }


def test_values_are_the_same_after_a_way_through_a_plugin() -> None:
    carried = pa.RecordBatch.from_pylist([ROW, dict.fromkeys(ROW) | {"_gs_op": "u"}], schema=arrow_schema(LOGICAL))
    shown = to_plugin(carried, LOGICAL, "n")
    assert shown.column("u64").to_pylist() == [2**64 - 1, None]
    assert from_plugin(shown, LOGICAL, "n").equals(carried)


def test_a_column_that_is_handed_on_keeps_its_meaning() -> None:
    assert columns_of(exchange_schema(LOGICAL), LOGICAL) == LOGICAL
    assert columns_of(exchange_schema(LOGICAL)).get("u256") == Field("u256", STRING)


def test_a_column_of_another_type_is_a_new_one() -> None:
    schema = pa.schema([pa.field("u8", pa.int64(), False), pa.field("_gs_op", pa.string())])
    assert columns_of(schema, LOGICAL) == Schema((Field("u8", INT64, nullable=False), OPERATION_FIELD))


def test_a_value_that_the_type_of_the_pipeline_cannot_hold_is_an_error_with_its_column() -> None:
    schema = Schema((Field("u8", UINT8),))
    with pytest.raises(PermanentError, match="'u8'"):
        from_plugin(pa.RecordBatch.from_pydict({"u8": [2**20]}), schema, "n")
