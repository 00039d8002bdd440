"""Parquet: the footer has the number of rows of each row group; a part is read from the groups that it overlaps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamling.errors import DATA_ERROR, PermanentError
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.parts import FilePart, Position
from streamling.sources.file.rows import BATCH_BYTES, BATCH_ROWS, Rows, RowShape

# Column chunks are read this many bytes at a time, so that the size of a row group does not matter.
_BUFFER = 1 << 20
# Rows that are read first, to measure how long rows are.
_FIRST_ROWS = 64
# Most rows that are read at once, however short the rows before them were: the next ones may be long.
_MOST_ROWS = 4096
# A group is opened again for smaller batches only if batches are larger than intended by more than this factor.
_SPARE = 4


@dataclass(frozen=True, slots=True)
class _Group:
    index: int
    first: int
    rows: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.rows


class ParquetCutter:
    def __init__(self, file: SourceFile, stream: Any, metadata: pq.FileMetaData, at: int, row: int) -> None:
        self.at = at
        self.row = row
        self._file = file
        self._stream = stream
        self._groups = _groups(metadata)

    def cut(self, rows: int, size: int) -> FilePart | None:
        group = next((g for g in self._groups if g.first <= self.at < g.end), None)
        if group is None:
            return None
        first, row, row_size = self.at, self.row, max(1, group.size // group.rows)
        count = max(1, min(rows, group.end - first, size // row_size))
        self.at, self.row = first + count, row + count
        return FilePart(self._file, first, self.at, row, count, count * row_size)

    @property
    def bytes_done(self) -> int:
        total = self._groups[-1].end if self._groups else 0
        return self._file.size * self.at // total if total else self._file.size

    def close(self) -> None:
        self._stream.close()


def open_cutter(
    file: SourceFile, stream: Any, at: int, row: int, shape: RowShape
) -> tuple[ParquetCutter, tuple[str, ...]]:
    """The cutter of a file, and the columns it has."""
    with _naming_file(file):
        content = pq.ParquetFile(stream)
    shape.check_types(file, content.schema_arrow)
    return ParquetCutter(file, stream, content.metadata, at, row), tuple(content.schema_arrow.names)


def rows(stream: Any, part: FilePart, shape: RowShape) -> Rows:
    file = pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False)
    names = [name for name in file.schema_arrow.names if name in shape.schema.names]
    for group in _groups(file.metadata):
        first, end = max(part.first, group.first), min(part.end, group.end)
        if first < end:
            with _naming_file(part.file):
                yield from _group_rows(file, group, first, end, names, part.file, shape)


def _group_rows(
    file: pq.ParquetFile, group: _Group, first: int, end: int, names: list[str], source: SourceFile, shape: RowShape
) -> Rows:
    number = first
    for batch in _join(_batches(file, group, first, end, names)):
        row = number + 1
        yield from shape.rows(batch, source, lambda index, row=row: (row + index, None))  # type: ignore[misc]
        number += batch.num_rows
        yield Position(number, number + 1)


def _batches(file: pq.ParquetFile, group: _Group, first: int, end: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a group between two offsets, in batches of bounded size.

    The size of rows in memory is known only after decoding: a value of a dictionary takes a few bits in the file. So a
    few rows are read first. The length of batches is fixed while a group is open; another length needs a new opening.
    """
    count, reopened = min(_FIRST_ROWS, _batch_length(group.rows, group.size)), False
    while first < end:
        start = group.first
        for encoded in file.iter_batches(count, row_groups=[group.index], columns=names, use_threads=False):
            batch = _decode_dictionaries(encoded)
            stop = start + batch.num_rows
            if stop > first:
                yield batch.slice(max(first, start) - start, min(stop, end) - max(first, start))
                first = stop
            start, length = stop, _batch_length(batch.num_rows, batch.nbytes)
            if first >= end:
                return
            if length * _SPARE < count or (length > count and not reopened):
                count, reopened = length, True
                break


def _decode_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """So that the size of the batch includes all bytes of each row."""
    for index, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type):
            batch = batch.set_column(index, batch.schema.names[index], column.dictionary_decode())
    return batch


def _batch_length(rows: int, size: int) -> int:
    """How many rows a batch may have, if `rows` rows take `size` bytes."""
    return max(1, min(_MOST_ROWS, BATCH_BYTES * rows // max(1, size)))


def _join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins batches as long as they stay within the bounds."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if pending and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES):
            yield pa.concat_batches(pending) if len(pending) > 1 else pending[0]
            pending, rows, size = [], 0, 0
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if pending:
        yield pa.concat_batches(pending) if len(pending) > 1 else pending[0]


@contextmanager
def _naming_file(file: SourceFile) -> Iterator[None]:
    """Raises errors in the content of a file as PermanentError with the path of the file."""
    try:
        yield
    except pa.ArrowInvalid as error:
        message = f"'{file.path}' cannot be read as parquet: {str(error).splitlines()[0]}"
        raise PermanentError(DATA_ERROR, message, hint="replace the file by an intact copy", cause=error) from error


def _groups(metadata: pq.FileMetaData) -> list[_Group]:
    return list(_each_group(metadata))


def _each_group(metadata: pq.FileMetaData) -> Iterator[_Group]:
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    firsts = accumulate((g.num_rows for g in groups), initial=0)
    for index, (first, group) in enumerate(zip(firsts, groups, strict=False)):
        if group.num_rows:
            yield _Group(index, first, group.num_rows, group.total_byte_size)
