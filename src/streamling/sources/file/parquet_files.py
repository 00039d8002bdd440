"""Parquet: the footer says how many rows each row group has; a stretch is read from the groups it touches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamling.errors import DATA_ERROR, PermanentError
from streamling.sources.file.listing import FoundFile
from streamling.sources.file.rows import BATCH_BYTES, BATCH_ROWS, Rows, Shape
from streamling.sources.file.stretches import Position, Stretch

# Column chunks are read this many bytes at a time, so that the size of a row group does not matter.
_BUFFER = 1 << 20
# Rows that are read to see how long rows are.
_FIRST_ROWS = 64
# Rows that come at once, however short those before them were: the next ones may be long.
_MOST_ROWS = 4096
# Batches larger than they should be by this factor are not worth opening a group again.
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
    def __init__(self, file: FoundFile, stream: Any, metadata: pq.FileMetaData, at: int, row: int) -> None:
        self.at, self.row = at, row
        self._file, self._stream = file, stream
        self._groups = _groups(metadata)

    def cut(self, rows: int, size: int) -> Stretch | None:
        group = next((g for g in self._groups if g.first <= self.at < g.end), None)
        if group is None:
            return None
        first, row, row_size = self.at, self.row, max(1, group.size // group.rows)
        taken = max(1, min(rows, group.end - first, size // row_size))
        self.at, self.row = first + taken, row + taken
        return Stretch(self._file, first, self.at, row, taken, taken * row_size)

    @property
    def bytes_done(self) -> int:
        total = self._groups[-1].end if self._groups else 0
        return self._file.size * self.at // total if total else self._file.size

    def close(self) -> None:
        self._stream.close()


def open_cutter(file: FoundFile, stream: Any, at: int, row: int, shape: Shape) -> tuple[ParquetCutter, tuple[str, ...]]:
    """The cutter of a file, and the columns it has."""
    with _told(file):
        content = pq.ParquetFile(stream)
    shape.check_types(file, content.schema_arrow)
    return ParquetCutter(file, stream, content.metadata, at, row), tuple(content.schema_arrow.names)


def rows(stream: Any, stretch: Stretch, shape: Shape) -> Rows:
    file = pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False)
    names = [name for name in file.schema_arrow.names if name in shape.schema.names]
    for group in _groups(file.metadata):
        first, end = max(stretch.first, group.first), min(stretch.end, group.end)
        if first < end:
            with _told(stretch.file):
                yield from _group_rows(file, group, first, end, names, stretch.file, shape)


def _group_rows(
    file: pq.ParquetFile, group: _Group, first: int, end: int, names: list[str], found: FoundFile, shape: Shape
) -> Rows:
    number = first
    for batch in _joined(_batches(file, group, first, end, names)):
        row = number + 1
        yield from shape.rows(batch, found, lambda index, row=row: (row + index, None))  # type: ignore[misc]
        number += batch.num_rows
        yield Position(number, number + 1)


def _batches(file: pq.ParquetFile, group: _Group, first: int, end: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a group between two places, in batches of bounded size.

    How long rows are in memory is seen only there: a value of a dictionary takes some bits in the file. So a few are
    read first. The length of batches is fixed when a group is opened; it is opened again for another.
    """
    count, tried = min(_FIRST_ROWS, _fitting(group.rows, group.size)), False
    while first < end:
        start = group.first
        for encoded in file.iter_batches(count, row_groups=[group.index], columns=names, use_threads=False):
            batch = _decoded(encoded)
            stop = start + batch.num_rows
            if stop > first:
                yield batch.slice(max(first, start) - start, min(stop, end) - max(first, start))
                first = stop
            start, fitting = stop, _fitting(batch.num_rows, batch.nbytes)
            if first >= end:
                return
            if fitting * _SPARE < count or (fitting > count and not tried):
                count, tried = fitting, True
                break


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionaries: a row counts with all its bytes."""
    for index, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type):
            batch = batch.set_column(index, batch.schema.names[index], column.dictionary_decode())
    return batch


def _fitting(rows: int, size: int) -> int:
    """How many rows are a batch, if so many take so many bytes."""
    return max(1, min(_MOST_ROWS, BATCH_BYTES * rows // max(1, size)))


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches put together as long as they stay within bounds."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES):
            yield pa.concat_batches(held) if len(held) > 1 else held[0]
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]


@contextmanager
def _told(file: FoundFile) -> Iterator[None]:
    """A file whose inside makes no sense, named."""
    try:
        yield
    except pa.ArrowInvalid as error:
        message = f"'{file.path}' cannot be read as parquet: {str(error).splitlines()[0]}"
        raise PermanentError(DATA_ERROR, message, hint="bring the file again as a whole", cause=error) from error


def _groups(metadata: pq.FileMetaData) -> list[_Group]:
    return list(_each_group(metadata))


def _each_group(metadata: pq.FileMetaData) -> Iterator[_Group]:
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    firsts = accumulate((g.num_rows for g in groups), initial=0)
    for index, (first, group) in enumerate(zip(firsts, groups, strict=False)):
        if group.num_rows:
            yield _Group(index, first, group.num_rows, group.total_byte_size)
