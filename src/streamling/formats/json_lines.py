"""Lines of JSON objects as Arrow columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.json as pajson


def parsed_lines(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """An object per row; other fields are ignored, missing ones are null. Raises ArrowInvalid."""
    # Arrow reads a date from a number only; people write it as text. It is no date if a time of day stands there too.
    readable = pa.schema([pa.field(f.name, pa.string() if pa.types.is_date32(f.type) else f.type) for f in schema])
    table = pajson.read_json(
        pa.py_buffer(data),
        pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pajson.ParseOptions(explicit_schema=readable, unexpected_field_behavior="ignore"),
    )
    if readable != schema:
        table = table.cast(schema)
    if table.num_rows:
        batch = table.combine_chunks().to_batches()[0]
        for column in batch.columns:
            if pa.types.is_decimal(column.type):
                column.validate(full=True)  # Arrow does not look whether a decimal has more digits than its type
        return batch
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
