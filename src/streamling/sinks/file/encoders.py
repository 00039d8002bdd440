"""Arrow batches to bytes, by file format."""

from __future__ import annotations

from typing import IO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from streamling.formats.json import json_rows
from streamling.plan.types import Schema


class Encoder(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _JsonLines:
    def __init__(self, file: IO[bytes], columns: Schema) -> None:
        self._file = file
        self._columns = columns

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write("".join(f"{row}\n" for row in json_rows(batch, self._columns)).encode())

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
        self._schema = pa.schema(fields)
        self._writer = pa.csv.CSVWriter(file, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_hex(column) if pa.types.is_binary(column.type) else column for column in batch.columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

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
            return _JsonLines(file, columns)
