"""Rows enter Spark with exactly the Arrow types of their columns, or not at all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamling.errors import BugError, PermanentError
from streamling.formats.arrow import arrow_schema, arrow_type, cast_batch
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DURATION,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_UTC,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
    map_of,
)

POINT = DataType("struct", fields=(Field("x", INT64, nullable=False), Field("tags", list_of(STRING))))


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (NULL, pa.null()),
        (BOOLEAN, pa.bool_()),
        (INT8, pa.int8()),
        (INT16, pa.int16()),
        (INT32, pa.int32()),
        (INT64, pa.int64()),
        (FLOAT32, pa.float32()),
        (FLOAT64, pa.float64()),
        (STRING, pa.string()),
        (BINARY, pa.binary()),
        (DATE, pa.date32()),
        (TIMESTAMP, pa.timestamp("us")),
        (TIMESTAMP_UTC, pa.timestamp("us", "UTC")),
        (DURATION, pa.duration("us")),
        (decimal(20, 4), pa.decimal128(20, 4)),
        (list_of(list_of(INT32)), pa.list_(pa.list_(pa.int32()))),
        (map_of(FLOAT64), pa.map_(pa.string(), pa.float64())),
        (POINT, pa.struct([pa.field("x", pa.int64()), pa.field("tags", pa.list_(pa.string()))])),
    ],
)
def test_every_logical_type_has_one_carrier(type_: DataType, expected: pa.DataType) -> None:
    assert arrow_type(type_) == expected


def test_a_type_without_a_carrier_is_a_bug() -> None:
    with pytest.raises(BugError, match="quaternion"):
        arrow_type(DataType("quaternion"))


def test_a_schema_keeps_order_names_and_nullability() -> None:
    schema = arrow_schema(Schema((Field("b", INT64, nullable=False), Field("a", STRING))))
    assert schema == pa.schema([pa.field("b", pa.int64(), nullable=False), pa.field("a", pa.string())])


WANTED = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_a_batch_that_fits_passes_as_it_is() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["a"])], schema=WANTED)
    assert cast_batch(batch, WANTED, "n") is batch


def test_columns_are_put_in_order_cast_and_cleared_of_others() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"extra": [0], "name": pa.array(["a"], pa.large_string()), "id": pa.array([1], pa.int32())}
    )
    fitted = cast_batch(batch, WANTED, "n")
    assert fitted.schema == WANTED
    assert fitted.to_pylist() == [{"id": 1, "name": "a"}]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array(["x"]), "'id' does not fit int64"),
        (pa.array([1.5]), "'id' does not fit int64"),
        (pa.array([1 << 63], pa.uint64()), "'id' does not fit int64"),
        (pa.array([[1]]), "'id' does not fit int64"),
        (pa.array([{"a": 1}]), "'id' does not fit int64"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_with_its_column(column: pa.Array, says: str) -> None:
    batch = pa.RecordBatch.from_arrays([column, pa.array(["a"])], names=["id", "name"])
    with pytest.raises(PermanentError) as caught:
        cast_batch(batch, WANTED, "orders")
    assert (caught.value.code, caught.value.node) == ("DATA_ERROR", "orders")
    assert says in caught.value.message
    assert caught.value.__cause__ is not None


def test_a_missing_column_is_an_error_with_its_name() -> None:
    with pytest.raises(PermanentError) as caught:
        cast_batch(pa.RecordBatch.from_pydict({"id": [1]}), WANTED, "orders")
    assert (caught.value.code, caught.value.node) == ("DATA_ERROR", "orders")
    assert "'name' is missing" in caught.value.message
