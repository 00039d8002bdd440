"""Decodes the lines of dead letters again. Of a CSV file only the header is read, for the names of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from streamling.connector import BadRow
from streamling.plan.types import Schema
from streamling.sources.file.listing import SourceFile, file_system, partitions_of
from streamling.sources.file.parts import FilePart, Position
from streamling.sources.file.reader import format_module
from streamling.sources.file.storage import naming_node, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sources.file.rows import RowShape

TEXT_FORMATS = ("csv", "json", "ndjson", "jsonl")
"""The formats whose bad rows have a payload."""


@dataclass(frozen=True, slots=True)
class FileDecoder:
    node: str
    path: str
    format: str
    columns: Schema

    def decode(self, rows: Sequence[BadRow]) -> Iterator[pa.RecordBatch | BadRow]:
        from streamling.sources.file.rows import RowShape

        shape = RowShape(self.columns)
        headings: dict[str, bytes | None] = {}
        with naming_node(self.node):
            for row in rows:
                path = str(row.source.get("file"))
                if path not in headings:
                    headings[path] = self._heading(path, shape)
                heading = headings[path]
                if heading is None:
                    text = f"'{path}', whose header has the names of the columns, is gone"
                    yield BadRow("decode_error", text, row.source)
                else:
                    yield from self._rows(row, path, heading, shape)

    def _rows(self, row: BadRow, path: str, heading: bytes, shape: RowShape) -> Iterator[pa.RecordBatch | BadRow]:
        """The line is read as the only row of a file with the same header and in the same directories."""
        content = heading + (row.raw or b"") + b"\n"
        file = SourceFile(path, len(content), 0, partitions_of(self.path, path))
        number = row.source.get("row")
        first = number if isinstance(number, int) else 1
        part = FilePart(file, len(heading), len(content), first, 1, len(content) - len(heading))
        for item in format_module(self.format).rows(BytesIO(content), part, shape):
            if not isinstance(item, Position):
                yield item

    def _heading(self, path: str, shape: RowShape) -> bytes | None:
        """The bytes in front of the first row that the format needs; None if the file is gone."""
        if self.format != "csv":
            return b""
        from pyarrow.fs import FileType

        from streamling.sources.file.csv_files import read_heading

        system, _ = file_system(self.path)
        with storage_errors(path):
            if system.get_file_info(path).type != FileType.File:
                return None
            with system.open_input_file(path) as stream:
                return read_heading(SourceFile(path, stream.size(), 0), stream, shape)
