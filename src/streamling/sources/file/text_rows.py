"""Rows of text files: Arrow parses whole chunks; bad records are found by halving."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from streamling.sources.file.parts import FilePart, Position
from streamling.sources.file.records import RecordChunk, RecordEnds, record_chunks
from streamling.sources.file.rows import BATCH_ROWS, Rows, RowShape, bad_row


class Parser(Protocol):
    def parse(self, data: bytes) -> pa.RecordBatch:
        """The rows of whole records. Raises ArrowInvalid or UnicodeDecodeError if one of them cannot be read."""

    def complaint(self, record: bytes) -> tuple[str, str]:
        """Why a record cannot be read: the reason as one word, and a message."""


def text_rows(stream: Any, part: FilePart, scanner: RecordEnds, parser: Parser, shape: RowShape) -> Rows:
    at = part.first
    for chunk in record_chunks(stream, part, scanner):
        yield from _rows(chunk, parser, part, shape)
        at += len(chunk.data)
        yield Position(at, chunk.row + len(chunk.ends))


def _rows(chunk: RecordChunk, parser: Parser, part: FilePart, shape: RowShape) -> Rows:
    # Short records may have many columns, so the number of rows is bounded as well as the bytes.
    batch = _parse(chunk, parser) if len(chunk.ends) <= BATCH_ROWS else None
    if batch is not None:
        records: list[tuple[int, bytes]] = []

        def place(index: int) -> tuple[int, bytes]:
            records.extend(() if records else chunk.records())
            return records[index]

        yield from shape.rows(batch, part.file, place)
    elif len(chunk.ends) == 1:
        yield bad_row(*parser.complaint(chunk.data), part.file, chunk.row, chunk.data)
    else:
        for half in chunk.halves():
            yield from _rows(half, parser, part, shape)


def _parse(chunk: RecordChunk, parser: Parser) -> pa.RecordBatch | None:
    """None if a record of the chunk cannot be read."""
    try:
        batch = parser.parse(chunk.data)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    # There must be one row per record, except for empty lines; else a record has a lone CR, or two objects.
    if batch.num_rows == len(chunk.ends) or batch.num_rows == sum(1 for _ in chunk.records()):
        return batch
    return None
