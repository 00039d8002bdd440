"""Avro container files: cut between blocks, decoded by the Arrow project's reader some megabytes at a time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamling.errors import SCHEMA_UNUSABLE, PermanentError
from streamling.formats.avro import expand_schema, rows_of
from streamling.formats.avro_blocks import (
    MARK_BYTES,
    SYNC_BYTES,
    Undecodable,
    container,
    encode_long,
    heading,
    read_rows,
    with_mark,
)
from streamling.formats.avro_names import has_unions
from streamling.formats.avro_values import cast_values, decoding_schema
from streamling.plan.types import Schema
from streamling.sources.file.avro_container import AvroBlock, AvroHeader, blocks, decompress, read_header
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.parts import FilePart, Position
from streamling.sources.file.rows import BATCH_ROWS, Rows, RowShape, bad_row

# What is fetched and decoded at once.
_CHUNK_BYTES = 4 << 20


class AvroCutter:
    """A block is never cut, so a part may have more rows than requested."""

    def __init__(self, file: SourceFile, stream: Any, header: AvroHeader, at: int, row: int) -> None:
        self.at = max(at, header.end)
        self.row = row
        self._file = file
        self._stream = stream
        self._blocks = blocks(file, stream, header, self.at)

    def cut(self, rows: int, size: int) -> FilePart | None:
        first, row, count = self.at, self.row, 0
        while count < rows and self.at - first < size and (block := next(self._blocks, None)) is not None:
            self.at, count = block.end, count + block.rows
        self.row = row + count
        return FilePart(self._file, first, self.at, row, count, self.at - first) if self.at > first else None

    @property
    def bytes_done(self) -> int:
        return self.at

    def close(self) -> None:
        self._stream.close()


def open_cutter(
    file: SourceFile, stream: Any, at: int, row: int, shape: RowShape
) -> tuple[AvroCutter, tuple[str, ...]]:
    """The cutter of a file, and the columns it has."""
    header = _header(file, stream)
    names = rows_of(header.schema).schema.names
    return AvroCutter(file, stream, header, at, row), names


def rows(stream: Any, part: FilePart, shape: RowShape) -> Rows:
    header = _header(part.file, stream)
    row = part.row
    for chunk in _chunks(blocks(part.file, stream, header, part.first), part.end):
        for contents in _contents(stream, header, chunk):
            yield from _content_rows(header, contents, row, part.file, shape)
            row += sum(content.block.rows for content in contents)
            yield Position(contents[-1].block.end, row)


def _header(file: SourceFile, stream: Any) -> AvroHeader:
    try:
        return read_header(stream)
    except ValueError as error:
        raise PermanentError(SCHEMA_UNUSABLE, f"'{file.path}' cannot be read as avro: {error}") from error


def _chunks(blocks_: Iterator[AvroBlock], end: int) -> Iterator[list[AvroBlock]]:
    """Blocks that are fetched together."""
    chunk: list[AvroBlock] = []
    for block in blocks_:
        if block.start >= end:
            break
        if chunk and (block.end - chunk[0].start > _CHUNK_BYTES or sum(b.rows for b in chunk) >= BATCH_ROWS):
            yield chunk
            chunk = []
        chunk.append(block)
    if chunk:
        yield chunk


@dataclass(frozen=True, slots=True)
class _Content:
    """A block and its decompressed bytes, or why they cannot be decompressed."""

    block: AvroBlock
    data: bytes = b""
    damage: str | None = None


def _contents(stream: Any, header: AvroHeader, chunk: list[AvroBlock]) -> Iterator[list[_Content]]:
    """Blocks that are decoded together. Their decompressed bytes count: a few bytes in the file may become many."""
    stream.seek(chunk[0].start)
    data = stream.read(chunk[-1].end - chunk[0].start)
    contents: list[_Content] = []
    for block in chunk:
        compressed = data[block.content - chunk[0].start : block.end - chunk[0].start - SYNC_BYTES]
        try:
            content = _Content(block, decompress(header.codec, compressed))
        except ValueError as error:
            content = _Content(block, damage=str(error))
        if contents and sum(len(c.data) for c in contents) + len(content.data) > _CHUNK_BYTES:
            yield contents
            contents = []
        contents.append(content)
    yield contents


def _content_rows(header: AvroHeader, contents: list[_Content], row: int, file: SourceFile, shape: RowShape) -> Rows:
    count = sum(content.block.rows for content in contents)
    if not count:
        return
    try:
        batch = _decode(header, contents)
    except Undecodable as error:
        if len(contents) > 1:
            for content in contents:
                yield from _content_rows(header, [content], row, file, shape)
                row += content.block.rows
            return
        message = f"the Avro block of {count} rows at byte {contents[0].block.start} cannot be decoded: {error}"
        for index in range(count):  # the ends of single rows are found only by decoding the whole block
            yield bad_row("decode_error", message, file, row + index, None)
        return
    yield from _cast_rows(batch, rows_of(header.schema).schema, row, file, shape)


def _cast_rows(batch: pa.RecordBatch, schema: Schema, row: int, file: SourceFile, shape: RowShape) -> Rows:
    """Casts the columns of the file to our types; a row that cannot be cast is bad."""
    fields = [field for field in schema if field.name in batch.schema.names]
    try:
        columns = [cast_values(batch.column(field.name), field.type) for field in fields]
    except pa.ArrowInvalid as error:
        if batch.num_rows == 1:
            yield bad_row("schema_mismatch", str(error), file, row, None)
            return
        middle = batch.num_rows // 2
        for start, end in ((0, middle), (middle, batch.num_rows)):
            # Copied, because the arrays inside of nested columns ignore the offset of a slice.
            half = batch.take(pa.arange(start, end))
            yield from _cast_rows(half, schema, row + start, file, shape)
        return
    whole = pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
    yield from shape.rows(whole, file, lambda index: (row + index, None))


def _decode(header: AvroHeader, contents: list[_Content]) -> pa.RecordBatch:
    """The rows of whole blocks. Raises Undecodable.

    The reader gets a block as one row: a list, which has the same encoding as a block, followed by a mark. In a block
    with more or fewer bytes than its rows need the mark is wrong, so it never shifts its neighbours.
    """
    mark = secrets.token_bytes(MARK_BYTES)
    joined = bytearray()
    for content in contents:
        if content.damage is not None:
            raise Undecodable(content.damage)
        joined += encode_long(content.block.rows) + content.data + encode_long(0) + mark
    listed = with_mark("rows", {"type": "array", "items": decoding_schema(expand_schema(header.schema))})
    unions = listed if has_unions(listed) else None
    rows = read_rows(container(heading(listed), len(contents), bytes(joined)), len(contents), unions)
    lists, marks = rows.column("rows"), rows.column("mark")
    if lists.value_lengths().to_pylist() != [content.block.rows for content in contents] or set(marks.to_pylist()) != {
        mark
    }:
        raise Undecodable("it has more or fewer bytes than its rows need")
    return pa.RecordBatch.from_struct_array(lists.flatten())
