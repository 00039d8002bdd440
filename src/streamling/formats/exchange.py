"""Rows as plugins see them: Arrow types that say what values mean, where the engine's carriers only hold them.

Numbers of more than 38 digits stay canonical decimal text.
"""

from __future__ import annotations

import pyarrow as pa

from streamling.formats.arrow import arrow_schema, arrow_type, conform, logical_type
from streamling.plan.types import OPERATION_COLUMN, OPERATION_FIELD, STRING, DataType, Field, Schema

_OWN = {
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "date64": pa.date64(),
    "time32": pa.time32("ms"),
}


def exchange_type(type_: DataType) -> pa.DataType:
    """The Arrow type of a logical type, as plugins see it."""
    if (own := _OWN.get(type_.kind)) is not None:
        return own
    match type_.kind:
        case "timestamp":
            return pa.timestamp(type_.unit or "us", tz=type_.zone)
        case "binary" if type_.length is not None:
            return pa.binary(type_.length)
        case "list" if type_.item:
            return pa.list_(exchange_type(type_.item))
        case "map" if type_.item:
            return pa.map_(exchange_type(type_.key or STRING), exchange_type(type_.item))
        case "struct":
            return pa.struct([pa.field(f.name, exchange_type(f.type), f.nullable) for f in type_.fields])
    return arrow_type(type_)


def exchange_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, exchange_type(f.type), f.nullable) for f in schema])


def columns_of(schema: pa.Schema, given: Schema | None = None) -> Schema:
    """What a plugin's schema means to the planner. Raises UserError for types we have no word for.

    A column that a transform hands on as it got it keeps the meaning it has in `given`.
    """
    known = {field.name: (exchange_type(field.type), field.type) for field in given or ()}
    fields = []
    for field in schema:
        shown, type_ = known.get(field.name, (None, None))
        if type_ is None or shown != field.type:
            type_ = logical_type(field.type, field.name)
        fields.append(OPERATION_FIELD if field.name == OPERATION_COLUMN else Field(field.name, type_, field.nullable))
    return Schema(tuple(fields))


def to_plugin(batch: pa.RecordBatch, schema: Schema, node: str) -> pa.RecordBatch:
    """A batch of the engine for a plugin."""
    return conform(batch, exchange_schema(schema), node)


def from_plugin(batch: pa.RecordBatch, schema: Schema, node: str) -> pa.RecordBatch:
    """A batch of a plugin for the engine."""
    return conform(batch, arrow_schema(schema), node)
