"""Arrow batches to bytes, by file format."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from streamling.formats.json import json_rows


class Encoder(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write("".join(f"{row}\n" for row in json_rows(batch)).encode())

    def close(self) -> None:
        return


class _Arrow:
    """A writer of pyarrow; both take batches."""

    def __init__(self, writer: pa.csv.CSVWriter | pa.parquet.ParquetWriter) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


def open_encoder(format_: str, file: IO[bytes], schema: pa.Schema) -> Encoder:
    match format_:
        case "parquet":
            return _Arrow(pa.parquet.ParquetWriter(file, schema))
        case "csv":
            return _Arrow(pa.csv.CSVWriter(file, schema))
        case _:
            return _JsonLines(file)


def extension(format_: str) -> str:
    return {"json": "jsonl"}.get(format_, format_)


def read_rows(path: Path, format_: str) -> pa.Table:
    """The rows of one written file; for tests and tools."""
    match format_:
        case "parquet":
            return pa.parquet.read_table(path)
        case "csv":
            return pa.csv.read_csv(path)
        case _:
            return pa.json.read_json(path)
