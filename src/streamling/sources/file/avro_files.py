"""Avro container files: cut between blocks, decoded by the Arrow project's reader some megabytes at a time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamling.errors import SCHEMA_UNUSABLE, PermanentError
from streamling.formats.avro import expanded, rows_of
from streamling.formats.avro_blocks import (
    MARK_BYTES,
    SYNC_BYTES,
    Undecodable,
    container,
    heading,
    marked,
    number,
    read_rows,
)
from streamling.formats.avro_names import has_unions
from streamling.formats.avro_values import readable, turned
from streamling.plan.types import Schema
from streamling.sources.file.avro_container import AvroHeader, Block, blocks, read_header, unpacked
from streamling.sources.file.listing import FoundFile
from streamling.sources.file.rows import BATCH_ROWS, Rows, Shape, bad_row
from streamling.sources.file.stretches import Position, Stretch

_RUN_BYTES = 4 << 20


class AvroCutter:
    """A block is never cut, so that a stretch may have more rows than asked for."""

    def __init__(self, file: FoundFile, stream: Any, header: AvroHeader, at: int, row: int) -> None:
        self.at, self.row = max(at, header.end), row
        self._file, self._stream = file, stream
        self._blocks = blocks(file, stream, header, self.at)

    def cut(self, rows: int, size: int) -> Stretch | None:
        first, row, taken = self.at, self.row, 0
        while taken < rows and self.at - first < size and (block := next(self._blocks, None)) is not None:
            self.at, taken = block.end, taken + block.rows
        self.row = row + taken
        return Stretch(self._file, first, self.at, row, taken, self.at - first) if self.at > first else None

    @property
    def bytes_done(self) -> int:
        return self.at

    def close(self) -> None:
        self._stream.close()


def open_cutter(file: FoundFile, stream: Any, at: int, row: int, shape: Shape) -> tuple[AvroCutter, tuple[str, ...]]:
    """The cutter of a file, and the columns it has."""
    header = _header(file, stream)
    names = rows_of(header.schema).schema.names
    return AvroCutter(file, stream, header, at, row), names


def rows(stream: Any, stretch: Stretch, shape: Shape) -> Rows:
    header = _header(stretch.file, stream)
    row = stretch.row
    for run in _runs(blocks(stretch.file, stream, header, stretch.first), stretch.end):
        for contents in _unpacked(stream, header, run):
            yield from _content_rows(header, contents, row, stretch.file, shape)
            row += sum(content.block.rows for content in contents)
            yield Position(contents[-1].block.end, row)


def _header(file: FoundFile, stream: Any) -> AvroHeader:
    try:
        return read_header(stream)
    except ValueError as error:
        raise PermanentError(SCHEMA_UNUSABLE, f"'{file.path}' cannot be read as avro: {error}") from error


def _runs(found: Iterator[Block], end: int) -> Iterator[list[Block]]:
    """Blocks that are fetched together."""
    run: list[Block] = []
    for block in found:
        if block.start >= end:
            break
        if run and (block.end - run[0].start > _RUN_BYTES or sum(b.rows for b in run) >= BATCH_ROWS):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class _Content:
    """A block and its bytes, or why it has none."""

    block: Block
    data: bytes = b""
    damage: str | None = None


def _unpacked(stream: Any, header: AvroHeader, run: list[Block]) -> Iterator[list[_Content]]:
    """Blocks that are decoded together. Few bytes in the file may be many, so it is the unpacked ones that count."""
    stream.seek(run[0].start)
    data = stream.read(run[-1].end - run[0].start)
    contents: list[_Content] = []
    for block in run:
        packed = data[block.content - run[0].start : block.end - run[0].start - SYNC_BYTES]
        try:
            content = _Content(block, unpacked(header.codec, packed))
        except ValueError as error:
            content = _Content(block, damage=str(error))
        if contents and sum(len(c.data) for c in contents) + len(content.data) > _RUN_BYTES:
            yield contents
            contents = []
        contents.append(content)
    yield contents


def _content_rows(header: AvroHeader, contents: list[_Content], row: int, file: FoundFile, shape: Shape) -> Rows:
    count = sum(content.block.rows for content in contents)
    if not count:
        return
    try:
        batch = _decoded(header, contents)
    except Undecodable as error:
        if len(contents) > 1:
            for content in contents:
                yield from _content_rows(header, [content], row, file, shape)
                row += content.block.rows
            return
        message = f"the Avro block of {count} rows at byte {contents[0].block.start} cannot be decoded: {error}"
        for index in range(count):  # a block tells only as a whole where its rows are
            yield bad_row("decode_error", message, file, row + index, None)
        return
    yield from _turned_rows(batch, rows_of(header.schema).schema, row, file, shape)


def _turned_rows(batch: pa.RecordBatch, schema: Schema, row: int, file: FoundFile, shape: Shape) -> Rows:
    """Rows with the columns that the file has, as our types want them; those that cannot be turned are bad."""
    fields = [field for field in schema if field.name in batch.schema.names]
    try:
        columns = [turned(batch.column(field.name), field.type) for field in fields]
    except pa.ArrowInvalid as error:
        if batch.num_rows == 1:
            yield bad_row("schema_mismatch", str(error), file, row, None)
            return
        middle = batch.num_rows // 2
        for start, end in ((0, middle), (middle, batch.num_rows)):
            # Copied, because arrays of values do not know which part of them a slice is.
            half = batch.take(pa.arange(start, end))
            yield from _turned_rows(half, schema, row + start, file, shape)
        return
    whole = pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
    yield from shape.rows(whole, file, lambda index: (row + index, None))


def _decoded(header: AvroHeader, contents: list[_Content]) -> pa.RecordBatch:
    """The rows of whole blocks. Raises Undecodable.

    A block is shown to the reader as one row: a list, which is written just like a block, and a mark behind it. A block
    whose bytes are more or fewer than its rows cannot give the right marks, so it never shifts its neighbours.
    """
    mark = secrets.token_bytes(MARK_BYTES)
    joined = bytearray()
    for content in contents:
        if content.damage is not None:
            raise Undecodable(content.damage)
        joined += number(content.block.rows) + content.data + number(0) + mark
    listed = marked("rows", {"type": "array", "items": readable(expanded(header.schema))})
    unions = listed if has_unions(listed) else None
    found = read_rows(container(heading(listed), len(contents), bytes(joined)), len(contents), unions)
    lists, marks = found.column("rows"), found.column("mark")
    if lists.value_lengths().to_pylist() != [content.block.rows for content in contents] or set(marks.to_pylist()) != {
        mark
    }:
        raise Undecodable("its bytes are not those of its rows")
    return pa.RecordBatch.from_struct_array(lists.flatten())
