"""Arrow batches to bytes, by file format."""

from __future__ import annotations

from typing import IO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from streamling.errors import DATA_ERROR, PermanentError
from streamling.formats.finite import NonFinite, find_non_finite, has_floats
from streamling.formats.json import json_rows
from streamling.formats.time_text import is_beyond_arrow, time_texts
from streamling.plan.types import Schema

# In messages.
_LONGEST_ROW = 500


class Encoder(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _JsonLines:
    """JSON has no NaN and no infinity: a row with one is an error, because null would be another value."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, columns: Schema, node: str) -> None:
        self._file = file
        self._columns = columns
        self._node = node
        self._floats = [field.name for field in schema if has_floats(field.type)]

    def write(self, batch: pa.RecordBatch) -> None:
        unwritable = find_non_finite(batch, self._floats)
        if unwritable is not None:
            raise self._refuse(batch, unwritable)
        self._file.write("".join(f"{row}\n" for row in json_rows(batch, self._columns)).encode())

    def _refuse(self, batch: pa.RecordBatch, unwritable: NonFinite) -> PermanentError:
        (row,) = json_rows(batch.slice(unwritable.index, 1), self._columns)
        row = row if len(row) <= _LONGEST_ROW else f"{row[:_LONGEST_ROW]}..."
        return PermanentError(
            DATA_ERROR,
            f"column '{unwritable.column}' is {unwritable.value}, which JSON cannot represent; the row, with null in "
            f"its place: {row}",
            node=self._node,
            hint="use format parquet or csv, or replace the value in a sql transform, for instance with "
            "CASE WHEN isnan(x) THEN NULL ELSE x END",
        )

    def close(self) -> None:
        return


class _Parquet:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pa.parquet.ParquetWriter(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Csv:
    """With a header line; binary as lower-case hex."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        fields = [pa.field(f.name, pa.string()) if pa.types.is_binary(f.type) else f for f in schema]
        self._file = file
        self._schema = pa.schema(fields)
        self._writer = pa.csv.CSVWriter(file, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_hex(column) if pa.types.is_binary(column.type) else column for column in batch.columns]
        if not any(is_beyond_arrow(column) for column in columns):
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            return
        columns = [time_texts(column) if is_beyond_arrow(column) else column for column in columns]
        texts = pa.RecordBatch.from_arrays(columns, names=self._schema.names)
        pa.csv.write_csv(texts, self._file, pa.csv.WriteOptions(include_header=False))

    def close(self) -> None:
        self._writer.close()


def _hex(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())


def open_encoder(format_: str, file: IO[bytes], schema: pa.Schema, columns: Schema, node: str) -> Encoder:
    """`schema`: the Arrow schema of the batches; `columns`: their types in the pipeline; `node`: for errors."""
    match format_:
        case "parquet":
            return _Parquet(file, schema)
        case "csv":
            return _Csv(file, schema)
        case _:
            return _JsonLines(file, schema, columns, node)
