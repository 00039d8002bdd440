"""Rows as messages: key, value, header; which rows of a batch are left out, and which cannot be messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.clients.kafka_producer import Headers
from streamling.connector import BadRow
from streamling.formats.avro_encoding import CannotEncode
from streamling.formats.avro_fit import RowEncoder
from streamling.formats.json import json_row
from streamling.formats.json_encoding import encode_json, key_texts
from streamling.formats.last_rows import last_rows
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.telemetry.stopwatch import Stopwatch

if TYPE_CHECKING:
    Indexes = np.ndarray[Any, Any]

# Rows encoded at once.
_CHUNK_ROWS = 20_000
_HEADER = "dbz.op"
_OPERATIONS = pa.array(["i", "u", "d"])
_HEADERS: tuple[Headers, ...] = ([(_HEADER, b"c")], [(_HEADER, b"u")], [(_HEADER, b"d")])


class ValueEncoder(Protocol):
    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """The value of each row. Raises CannotEncode."""


@dataclass(frozen=True, slots=True)
class JsonValues:
    columns: Schema

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return encode_json(batch, self.columns)


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of a chunk of rows. `indexes` are the numbers of their rows among those of the epoch."""

    values: list[bytes]
    keys: list[bytes]
    headers: list[Headers]
    indexes: Indexes

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class MessageMaker:
    """`batch_rows`: of several rows of one key among so many, only the last becomes a message; None keeps all."""

    columns: Schema
    key: tuple[str, ...]
    values: ValueEncoder | RowEncoder
    topic: str
    max_bytes: int
    batch_rows: int | None

    def select(self, rows: pa.Table, excluded: Sequence[int] = ()) -> Indexes:
        """The numbers of the rows to be written, in order."""
        return last_rows(rows, self.key, self.batch_rows, excluded)

    def chunks(
        self, rows: pa.Table, indexes: Indexes, note: Callable[[float], object] | None = None
    ) -> Iterator[Messages | BadRow]:
        """The messages of these rows, chunk by chunk, and the rows that cannot be messages. `note` gets the
        milliseconds in which each chunk was encoded."""
        everything = len(indexes) == rows.num_rows
        for start in range(0, len(indexes), _CHUNK_ROWS):
            chosen = indexes[start : start + _CHUNK_ROWS]
            table = rows.slice(start, _CHUNK_ROWS) if everything else rows.take(chosen)
            encoded = self._encode(table.combine_chunks().to_batches()[0], chosen)
            if note is None:
                yield from encoded
            else:
                stopwatch = Stopwatch()
                yield from stopwatch.output(encoded)
                note(stopwatch.milliseconds)

    def _encode(self, batch: pa.RecordBatch, indexes: Indexes) -> Iterator[Messages | BadRow]:
        codes = pc.index_in(pc.utf8_lower(batch.column(OPERATION_COLUMN)), _OPERATIONS)
        if codes.null_count:
            yield from self._without(batch, indexes, codes.is_null(), self._unknown_operation)
            return
        try:
            values = self.values.encode(batch).cast(pa.binary())
        except CannotEncode as error:
            yield from self._halve(batch, indexes, error)
            return
        keys = self.keys(batch)
        too_large = pc.greater(pc.add(pc.binary_length(values), pc.binary_length(keys)), self.max_bytes)
        if pc.any(too_large).as_py():
            yield from self._without(batch, indexes, too_large, self._too_large)
            return
        headers = [_HEADERS[code] for code in codes.to_pylist()]
        yield Messages(values.to_pylist(), keys.to_pylist(), headers, indexes)

    def _without(self, batch: pa.RecordBatch, indexes: Indexes, bad: pa.Array, reject: Any) -> Iterator[Any]:
        for number in pc.indices_nonzero(bad).to_pylist():
            yield reject(batch.slice(number, 1), int(indexes[number]))
        good = np.asarray(pc.invert(bad).cast(pa.uint8()), bool)
        if good.any():
            yield from self._encode(batch.filter(pa.array(good)), indexes[good])

    def _halve(self, batch: pa.RecordBatch, indexes: Indexes, error: CannotEncode) -> Iterator[Messages | BadRow]:
        """Encode the first half, then the second, until the row is found that cannot be encoded."""
        if batch.num_rows == 1:
            text = f"topic '{self.topic}': {error}"
            yield BadRow("encode_error", text, {}, row=json_row(batch, 0), index=int(indexes[0]))
            return
        middle = batch.num_rows // 2
        yield from self._encode(batch.slice(0, middle), indexes[:middle])
        yield from self._encode(batch.slice(middle), indexes[middle:])

    def keys(self, batch: pa.RecordBatch) -> pa.Array:
        """The values of the key columns as text, joined with `:`; `NULL` for null."""
        return key_texts(batch, self.key, self.columns).cast(pa.binary())

    def _unknown_operation(self, row: pa.RecordBatch, index: int) -> BadRow:
        value = row.column(OPERATION_COLUMN)[0].as_py()
        what = "is null" if value is None else f"is {value!r}"
        text = f"{OPERATION_COLUMN} {what}; it must be i, u or d"
        return BadRow("unknown_operation", text, {}, row=json_row(row, 0), index=index)

    def _too_large(self, row: pa.RecordBatch, index: int) -> BadRow:
        size = len(self.values.encode(row).cast(pa.binary())[0].as_py()) + len(self.keys(row)[0].as_py())
        return self.rejected(row, index, f"the message has {size:,} bytes, 'message_max_bytes' is {self.max_bytes:,}")

    def rejected(self, row: pa.RecordBatch, index: int, why: str) -> BadRow:
        """A row whose message is too large. The column is named, because it is mostly one that is too long."""
        sizes = {name: column.nbytes for name, column in zip(row.schema.names, row.columns, strict=True)}
        largest = max(sizes, key=lambda name: sizes[name])
        key = self.keys(row)[0].as_py()[:80].decode(errors="replace")
        text = f"topic '{self.topic}', key '{key}': {why}; most of it is the column '{largest}'"
        return BadRow("message_too_large", text, {}, row=json_row(row, 0), index=index)
