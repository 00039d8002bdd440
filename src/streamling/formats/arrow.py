"""Logical types as Arrow types: those that sources, sinks and Spark exchange rows in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamling.errors import DATA_ERROR, INTERNAL, SCHEMA_UNUSABLE, BugError, PermanentError, UserError
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DATE64,
    DURATION,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPERATION_COLUMN,
    STRING,
    TIME32,
    TIME64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
    map_of,
    struct_of,
)

_SIMPLE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "duration": pa.duration("us"),
    # Spark refuses Arrow's own types for these, or has no type as wide; the planner remembers the logical type.
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "float16": pa.float32(),
    "date64": pa.date32(),
    "time32": pa.time64("us"),
    "time64": pa.time64("us"),
    "interval": pa.string(),
    "decimal_arb": pa.string(),
}


def arrow_type(type_: DataType) -> pa.DataType:
    """The Arrow type Spark maps this logical type to and from."""
    simple = _SIMPLE.get(type_.kind)
    if simple is not None:
        return simple
    match type_.kind:
        case "timestamp":
            return pa.timestamp("us", tz=type_.zone)
        case "decimal" if type_.wide:
            return pa.string()
        case "decimal":
            return pa.decimal128(type_.precision, type_.scale)
        case "list" if type_.item:
            return pa.list_(arrow_type(type_.item))
        case "map" if type_.item:
            return pa.map_(arrow_type(type_.key or STRING), arrow_type(type_.item))
        case "struct":
            # Members are nullable, also the required ones: where a record is null, Spark gives null members as well.
            return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in type_.fields])
    raise BugError(INTERNAL, f"there is no Arrow type for {type_}")


_OPERATIONS = ("i", "u", "d")
_LOGICAL = {
    pa.null(): STRING,  # a column in which only nulls were seen
    pa.bool_(): BOOLEAN,
    pa.int8(): INT8,
    pa.int16(): INT16,
    pa.int32(): INT32,
    pa.int64(): INT64,
    pa.uint8(): UINT8,
    pa.uint16(): UINT16,
    pa.uint32(): UINT32,
    pa.uint64(): UINT64,
    pa.float16(): FLOAT16,
    pa.float32(): FLOAT32,
    pa.float64(): FLOAT64,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.binary(): BINARY,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
    pa.date32(): DATE,
    pa.date64(): DATE64,
}


def logical_type(type_: pa.DataType, path: str) -> DataType:
    """The logical type of an Arrow type. Raises UserError, naming the column `path`, for types without one."""
    if (simple := _LOGICAL.get(type_)) is not None:
        return simple
    if pa.types.is_timestamp(type_):
        return DataType("timestamp", unit=None if type_.unit == "us" else type_.unit, zone=type_.tz)
    if pa.types.is_time(type_):
        return TIME32 if pa.types.is_time32(type_) else TIME64
    if pa.types.is_duration(type_):
        return DURATION
    if pa.types.is_decimal(type_) and type_.scale >= 0:
        return decimal(type_.precision, type_.scale)
    if pa.types.is_fixed_size_binary(type_):
        return DataType("binary", length=type_.byte_width)
    if pa.types.is_dictionary(type_):
        return logical_type(type_.value_type, path)
    if pa.types.is_struct(type_):
        return struct_of(*(Field(f.name, logical_type(f.type, f"{path}.{f.name}"), f.nullable) for f in type_))
    if pa.types.is_map(type_):
        key = logical_type(type_.key_type, f"{path}{{}}")
        return map_of(logical_type(type_.item_type, f"{path}{{}}"), key)
    if hasattr(type_, "value_type"):
        return list_of(logical_type(type_.value_type, f"{path}[]"))
    raise UserError(SCHEMA_UNUSABLE, f"column '{path}' has the type {type_}, which has no counterpart in a pipeline")


def arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in schema])


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema, node: str) -> pa.RecordBatch:
    """Casts the batch to exactly this schema. Raises PermanentError, naming the column that does not fit."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            raise PermanentError(DATA_ERROR, f"column {field.name!r} is missing in the rows of this node", node=node)
        try:
            columns.append(cast_array(batch.column(index), field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PermanentError(
                DATA_ERROR, f"column {field.name!r} does not fit {field.type}: {error}", node=node, cause=error
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rebatch(batches: Iterable[pa.RecordBatch], size: int | None) -> Iterator[pa.RecordBatch]:
    """Batches of `size` rows, the last one smaller; without a size, the batches as they come. None of them is empty."""
    if size is None:
        yield from (batch for batch in batches if batch.num_rows)
        return
    buffer: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        while batch.num_rows:
            head = batch.slice(0, size - rows)
            buffer.append(head)
            rows += head.num_rows
            batch = batch.slice(head.num_rows)
            if rows == size:
                yield pa.concat_batches(buffer)
                buffer, rows = [], 0
    if buffer:
        yield pa.concat_batches(buffer)


def unknown_operations(batch: pa.RecordBatch) -> dict[int, str]:
    """The rows without a valid operation, by their index, and what is wrong with it."""
    operations = batch.column(OPERATION_COLUMN)
    known = pc.is_in(operations, pa.array(_OPERATIONS))
    if pc.all(known, min_count=0).as_py():
        return {}
    problems: dict[int, str] = {}
    for index in pc.indices_nonzero(pc.invert(known)).to_pylist():
        value = operations[index].as_py()
        what = "is null" if value is None else f"is {value!r}"
        problems[index] = f"{OPERATION_COLUMN} {what}; it must be i, u or d"
    return problems


def cast_array(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Casts a column. Decimals become text with plain digits, where Arrow would write an exponent, `1E-20`."""
    if not _count_decimals(column.type) or _count_decimals(type_) == _count_decimals(column.type):
        return column.cast(type_)
    return pa.array([_write_decimals(value, type_) for value in column.to_pylist()], type_)


def _count_decimals(type_: pa.DataType) -> int:
    """How many decimal types are inside a type."""
    if pa.types.is_decimal(type_):
        return 1
    return sum(_count_decimals(type_.field(index).type) for index in range(type_.num_fields))


def _write_decimals(value: Any, type_: pa.DataType) -> Any:
    """The value with its decimals as canonical text where `type_` has text."""
    if isinstance(value, Decimal) and pa.types.is_string(type_):
        return f"{value:f}" if value else "0"
    if isinstance(value, list) and pa.types.is_map(type_):
        return [(_write_decimals(key, type_.key_type), _write_decimals(item, type_.item_type)) for key, item in value]
    if isinstance(value, list):
        return [_write_decimals(item, type_.value_type) for item in value]
    if isinstance(value, dict):
        return {field.name: _write_decimals(value.get(field.name), field.type) for field in type_}
    return value
