"""Rows as plugins see them: in the Arrow types of their meaning, where the engine uses types that Spark supports.

Numbers of more than 38 digits stay canonical decimal text.
"""

from __future__ import annotations

import pyarrow as pa

from streamling.formats.arrow import arrow_schema, arrow_type, cast_batch, logical_type
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
            # Nullable, as in `arrow_type`: members are null where their record is.
            return pa.struct([pa.field(f.name, exchange_type(f.type)) for f in type_.fields])
    return arrow_type(type_)


def exchange_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, exchange_type(f.type), f.nullable) for f in schema])


def columns_of(schema: pa.Schema, input_: Schema | None = None) -> Schema:
    """The columns of a plugin's schema. Raises UserError for types without a counterpart.

    A column that a transform returns with the type it got keeps its logical type from `input_`.
    """
    known = {field.name: (exchange_type(field.type), field.type) for field in input_ or ()}
    fields = []
    for field in schema:
        exchanged, type_ = known.get(field.name, (None, None))
        if type_ is None or exchanged != field.type:
            type_ = logical_type(field.type, field.name)
        fields.append(OPERATION_FIELD if field.name == OPERATION_COLUMN else Field(field.name, type_, field.nullable))
    return Schema(tuple(fields))


def to_plugin(batch: pa.RecordBatch, schema: Schema, node: str) -> pa.RecordBatch:
    """Casts a batch of the engine for a plugin."""
    return cast_batch(batch, exchange_schema(schema), node)


def from_plugin(batch: pa.RecordBatch, schema: Schema, node: str) -> pa.RecordBatch:
    """Casts a batch of a plugin for the engine."""
    return cast_batch(batch, arrow_schema(schema), node)
