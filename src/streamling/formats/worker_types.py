"""Arrow types that Spark accepts from a Python worker.

They are the types of `formats/arrow.py`, except for times. `createDataFrame` takes a time in microseconds and casts it
to Spark's own nanoseconds. The batches of a worker are not cast: Spark reads time64[ns] and rejects time64[us].
"""

from __future__ import annotations

import pyarrow as pa


def worker_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that Spark accepts from a worker for rows of `schema`; `schema` itself if no column has a time."""
    if not any(_has_time(field.type) for field in schema):
        return schema
    return pa.schema([field.with_type(_worker_type(field.type)) for field in schema])


def to_worker(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Casts the batch to a schema of `worker_schema`. Columns without times are not copied."""
    if batch.schema is schema or batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_time(type_: pa.DataType) -> bool:
    if pa.types.is_time(type_):
        return True
    return any(_has_time(type_.field(index).type) for index in range(type_.num_fields))


def _worker_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_time(type_):
        return pa.time64("ns")
    if pa.types.is_map(type_):
        return pa.map_(_worker_type(type_.key_type), _worker_type(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(_worker_field(type_.value_field))
    if pa.types.is_struct(type_):
        return pa.struct([_worker_field(field) for field in type_])
    return type_


def _worker_field(field: pa.Field) -> pa.Field:
    return field.with_type(_worker_type(field.type))
