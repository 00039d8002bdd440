"""Logical types as Arrow carries them between the edges and Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from streamling.errors import DATA_ERROR, INTERNAL, BugError, PermanentError
from streamling.plan.types import STRING, DataType, Schema

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
    # Spark refuses Arrow's own types for these, or has none as wide; the planner remembers what they are.
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
            return pa.struct([pa.field(f.name, arrow_type(f.type), f.nullable) for f in type_.fields])
    raise BugError(INTERNAL, f"no Arrow carrier for type {type_}")


def arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in schema])


def conform(batch: pa.RecordBatch, schema: pa.Schema, node: str) -> pa.RecordBatch:
    """The batch with exactly this schema; an error names the column that does not fit."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            raise PermanentError(DATA_ERROR, f"column {field.name!r} is missing in the rows of this node", node=node)
        try:
            columns.append(_carried(batch.column(index), field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PermanentError(
                DATA_ERROR, f"column {field.name!r} does not fit {field.type}: {error}", node=node, cause=error
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _carried(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column as `type_`. Arrow would write decimals with an exponent, `1E-20`, where ours are plain digits."""
    if not _holds_decimals(column.type) or _holds_decimals(type_) == _holds_decimals(column.type):
        return column.cast(type_)
    return pa.array([_written(value, type_) for value in column.to_pylist()], type_)


def _holds_decimals(type_: pa.DataType) -> int:
    """How many decimal types a type is made of."""
    if pa.types.is_decimal(type_):
        return 1
    return sum(_holds_decimals(type_.field(index).type) for index in range(type_.num_fields))


def _written(value: Any, type_: pa.DataType) -> Any:
    """A value with its decimals as canonical text, where `type_` wants text."""
    if isinstance(value, Decimal) and pa.types.is_string(type_):
        return f"{value:f}" if value else "0"
    if isinstance(value, list) and pa.types.is_map(type_):
        return [(_written(key, type_.key_type), _written(item, type_.item_type)) for key, item in value]
    if isinstance(value, list):
        return [_written(item, type_.value_type) for item in value]
    if isinstance(value, dict):
        return {field.name: _written(value.get(field.name), field.type) for field in type_}
    return value
