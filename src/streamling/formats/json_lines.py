"""JSON lines to Arrow columns."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.json as pajson


def parse_lines(
    data: bytes, schema: pa.Schema, exact_times: Collection[str] = (), *, only_known: bool = False
) -> pa.RecordBatch:
    """One row per object; fields that are not in the schema are ignored, missing ones are null. Raises ArrowInvalid.

    exact_times   columns in which a timestamp must have a zone if its type has one, and none otherwise
    only_known    raise ArrowInvalid for a field that is not in the schema, at any depth
    """
    parsing = pa.schema([pa.field(f.name, _text_type(f.type, times=f.name in exact_times)) for f in schema])
    table = pajson.read_json(
        pa.py_buffer(data),
        pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pajson.ParseOptions(explicit_schema=parsing, unexpected_field_behavior="error" if only_known else "ignore"),
    )
    if parsing != schema:
        table = table.cast(schema)
    if table.num_rows:
        batch = table.combine_chunks().to_batches()[0]
        for column in batch.columns:
            if _has_decimals(column.type):
                column.validate(full=True)  # Arrow does not check that a decimal has no more digits than its type
        return batch
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _text_type(type_: pa.DataType, *, times: bool) -> pa.DataType:
    """The type with text in place of dates, and of timestamps if `times`.

    Arrow reads a date only from a number, but it is usually written as text. With a time of day it is not a date.
    Arrow reads a timestamp from text with or without a zone, whatever its type; the cast from text is exact.
    """
    if pa.types.is_date32(type_) or (times and pa.types.is_timestamp(type_)):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(_text_type(f.type, times=times)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_text_type(type_.value_type, times=times)))
    return type_


def _has_decimals(type_: pa.DataType) -> bool:
    return pa.types.is_decimal(type_) or any(_has_decimals(type_.field(n).type) for n in range(type_.num_fields))
