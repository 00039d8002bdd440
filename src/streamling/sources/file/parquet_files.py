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
from streamling.sources.file.rows import BATCH_ROWS, Rows, Shape
from streamling.sources.file.stretches import Stretch

# Column chunks are read this many bytes at a time, so that the size of a row group does not matter.
_BUFFER = 1 << 20
_BATCH_BYTES = 8 << 20


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
    batch_rows = max(1, min(BATCH_ROWS, _BATCH_BYTES * group.rows // max(1, group.size)))
    number = group.first
    for batch in file.iter_batches(batch_rows, row_groups=[group.index], columns=names, use_threads=False):
        skipped = max(0, first - number)
        if skipped < batch.num_rows:
            kept = batch.slice(skipped, min(batch.num_rows, end - number) - skipped)
            row = number + skipped + 1
            yield from shape.rows(kept, found, lambda index, row=row: (row + index, None))  # type: ignore[misc]
        number += batch.num_rows
        if number >= end:
            return


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
