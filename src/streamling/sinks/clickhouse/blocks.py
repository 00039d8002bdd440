"""The rows of an epoch as ClickHouse gets them: encoded columns, cut into blocks that are the same in every replay."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.clickhouse_encoding import CannotEncode, bad_values
from streamling.formats.last_rows import key_numbers
from streamling.plan.types import OPERATION_COLUMN
from streamling.sinks.clickhouse.tables import DELETED, MAX_BLOCKS, PairedColumn
from streamling.spec.settings.blocks import Compression

if TYPE_CHECKING:
    Indexes = np.ndarray[Any, Any]

_ZSTD_LEVEL = 3


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Columns of an epoch in the types of the table. `deletions`: which rows are deletes."""

    columns: Mapping[str, pa.Array]
    deletions: Indexes

    def take(self, indexes: Indexes) -> pa.RecordBatch:
        taken = [_take(column, indexes) for column in self.columns.values()]
        return pa.RecordBatch.from_arrays(taken, names=list(self.columns))


def arrow_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value that does not fit its column."""

    index: int
    column: str
    message: str


def encode_rows(rows: pa.Table, columns: Sequence[PairedColumn], *, marks: bool) -> tuple[EncodedRows, list[BadValue]]:
    """Encode all rows, and find those that cannot be: their values in the result are null, and must not be used.

    `marks`: with the column that marks deletes.
    """
    encoded: dict[str, pa.Array] = {}
    bad: list[BadValue] = []
    for column in columns:
        values = rows.column(column.name).combine_chunks()
        try:
            encoded[column.name] = column.encode(values)
        except (CannotEncode, pa.ArrowInvalid):
            found = bad_values(values, column.encode)
            bad += [BadValue(index, column.name, why) for index, why in found.items()]
            encoded[column.name] = _encode_others(values, column, found)
    operations = pc.utf8_lower(rows.column(OPERATION_COLUMN)).combine_chunks()
    marked = pc.equal(operations, "d").fill_null(False).cast(pa.uint8())
    if marks:
        encoded[DELETED] = marked
    return EncodedRows(encoded, np.asarray(marked, dtype=bool)), bad


def _encode_others(values: pa.Array, column: PairedColumn, bad: Mapping[int, str]) -> pa.Array:
    """All values but the bad ones, at their places."""
    good = np.setdiff1d(np.arange(len(values)), np.fromiter(bad, np.int64, len(bad)))
    encoded = column.encode(values.take(pa.array(good)))
    places = np.zeros(len(values), np.int64)
    places[good] = np.arange(len(good))
    mask = np.zeros(len(values), bool)
    mask[list(bad)] = True
    return encoded.take(pa.array(places, mask=mask))


def _take(column: pa.Array, indexes: Indexes) -> pa.Array:
    if len(indexes) and indexes[-1] - indexes[0] + 1 == len(indexes):
        return column.slice(int(indexes[0]), len(indexes))
    return column.take(pa.array(indexes))


def cut(indexes: Indexes, batch_rows: int) -> Iterator[Indexes]:
    """Blocks of `batch_rows` rows, or of more: a table does not remember an endless number of inserts."""
    size = max(batch_rows, -(-len(indexes) // MAX_BLOCKS))
    for start in range(0, len(indexes), size):
        yield indexes[start : start + size]


def divide(rows: pa.Table, key: Sequence[str], indexes: Indexes, width: int) -> list[Indexes]:
    """The rows of each stream: rows of one key are in one stream, in order."""
    if width == 1 or not len(indexes):
        return [indexes]
    streams = key_numbers(rows, key)[indexes] % width
    return [part for stream in range(width) if len(part := indexes[streams == stream])]


class ReplacedRows:
    """The rows that are not written because a later row of their batch has the same key; none without
    `batch_rows`."""

    def __init__(self, rows: pa.Table, key: Sequence[str], batch_rows: int | None, excluded: Sequence[int]) -> None:
        self._rows = rows
        self._key = key
        self._batch_rows = batch_rows
        self._excluded = excluded
        self._numbers: Indexes | None = None
        """Made when the first row is rejected, which is rare."""

    def before(self, index: int) -> int | None:
        """The row that was replaced by this one."""
        if self._batch_rows is None:
            return None
        if self._numbers is None:
            numbers = key_numbers(self._rows, self._key)
            numbers[list(self._excluded)] = -1
            self._numbers = numbers
        start = index // self._batch_rows * self._batch_rows
        earlier = np.flatnonzero(self._numbers[start:index] == self._numbers[index])
        return start + int(earlier[-1]) if len(earlier) else None


def split_deletions(
    rows: pa.Table, key: Sequence[str], encoded: EncodedRows, indexes: Indexes
) -> tuple[Indexes, Indexes]:
    """The rows whose keys are deleted first, and the rows that are inserted then: those after the last delete of their
    key."""
    is_deletion = encoded.deletions[indexes]
    if not is_deletion.any():
        return indexes[:0], indexes
    numbers = key_numbers(rows.take(pa.array(indexes)), key)
    places = np.arange(len(indexes))
    last = np.full(int(numbers.max()) + 1, -1)
    np.maximum.at(last, numbers[is_deletion], places[is_deletion])
    return indexes[is_deletion], indexes[places > last[numbers]]


def compress(content: bytes, compression: Compression, level: int) -> tuple[bytes, str | None]:
    """The body of a request, and its encoding."""
    match compression:
        case Compression.GZIP:
            return gzip.compress(content, level, mtime=0), "gzip"
        case Compression.ZSTD:
            return pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(content, asbytes=True), "zstd"
        case Compression.LZ4:
            return pa.Codec("lz4").compress(content, asbytes=True), "lz4"
    return content, None
