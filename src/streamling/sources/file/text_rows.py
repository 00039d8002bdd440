"""Rows of text files: Arrow parses whole chunks; bad records are found by halving."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from streamling.connector import Counted
from streamling.sources.file.parts import FilePart, Position
from streamling.sources.file.records import RecordChunk, RecordEnds, record_chunks
from streamling.sources.file.rows import BATCH_ROWS, Rows, RowShape, bad_row

_UNREAD = "unread fields: "


class Parser(Protocol):
    def parse(self, data: bytes) -> pa.RecordBatch:
        """The rows of whole records. Raises ArrowInvalid or UnicodeDecodeError if one of them cannot be read."""

    def complaint(self, record: bytes) -> tuple[str, str]:
        """Why a record cannot be read: the reason as one word, and a message."""

    def unread_fields(self) -> tuple[str, ...]:
        """Fields that the source does not have and that were found since the last call."""


def unread_fields(path: str, fields: Sequence[str]) -> Counted:
    """How a reader tells the control side about fields that the source does not have."""
    return Counted(_UNREAD + json.dumps([path, *fields]), 1)


def parse_unread_fields(what: str) -> tuple[str, list[str]] | None:
    """The path and the fields of `unread_fields`; None for other counts."""
    if not what.startswith(_UNREAD):
        return None
    path, *fields = json.loads(what.removeprefix(_UNREAD))
    return path, fields


def inexact_value(column: str, value: str, type_: str) -> str:
    """The message about a value that the inferred type of its column would change."""
    return (
        f"column '{column}': {value[:80]} would change as {type_}, the type of the first values; set the type of the "
        "column in 'schema' of the source"
    )


def text_rows(stream: Any, part: FilePart, scanner: RecordEnds, parser: Parser, shape: RowShape) -> Rows:
    at = part.first
    for chunk in record_chunks(stream, part, scanner):
        yield from _rows(chunk, parser, part, shape)
        if fields := parser.unread_fields():
            yield unread_fields(part.file.path, fields)
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
