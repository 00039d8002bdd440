"""Messages to rows of the source: payload, metadata and operation, with the bad rows in their places.

Python work per message is limited to list comprehensions over its value, the first bytes of it, its body and its
headers, each once. If all messages of a chunk have one schema, and a known operation as their first header or no
headers at all, nothing else is done per message; other messages are handled one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamling.connector import BadRow, Counted
from streamling.errors import StreamlingError
from streamling.formats.arrow import arrow_schema, unknown_operations
from streamling.formats.bodies import BadBody
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sources.kafka.keys import key_values
from streamling.sources.kafka.payload import Payload
from streamling.spec.settings.blocks import KafkaConnection

OPERATION_HEADER = "dbz.op"
_OPERATIONS = {b"r": ord("i"), b"c": ord("i"), b"u": ord("u"), b"d": ord("d")}
_HEADERS = {(OPERATION_HEADER, value): operation for value, operation in _OPERATIONS.items()}
_INSERT, _DELETE = b"i", ord("d")
Bodies = dict[int, tuple[Sequence[int], list[bytes]]]
"""Indexes of messages and their bodies, by the id of the writer schema."""
Payloads = tuple[Sequence[int], pa.RecordBatch]
"""Indexes of messages and their payload columns."""
# Timestamps are stored as microseconds.
_LATEST_MS = (2**63 - 1) // 1000
PARTITION, OFFSET, TIME = "__kafka_partition", "__kafka_offset", "__kafka_timestamp"


@dataclass(frozen=True, slots=True)
class MessageRows:
    """`tombstones`: what happens to a message without payload: `skip`, `delete` by the columns `key`, or `error`."""

    topic: str
    columns: Schema
    payload: Payload
    connection: KafkaConnection
    metadata: bool
    tombstones: str
    key: tuple[str, ...]

    def bad_row(self, reason: str, text: str, message: Any) -> BadRow:
        place = {"topic": self.topic, "partition": message.partition(), "offset": message.offset()}
        if self.metadata:  # a replay of the dead letter needs it
            place["timestamp"] = message.timestamp()[1]
        headers = message.headers()
        return BadRow(
            reason,
            text,
            place,
            raw=message.value(),
            raw_key=message.key(),
            headers=None if headers is None else tuple(headers),
        )

    def rows(self, messages: Sequence[Any]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        """The rows of messages of one partition, in order."""
        bad: dict[int, BadRow] = {}
        bodies = self._bodies(messages, bad)
        empty = len(messages) - len(bad) - sum(len(indexes) for indexes, _ in bodies.values())
        if empty and self.tombstones == "skip":
            yield Counted("tombstones_skipped", empty)
        operations = None if self.payload.has_operation else self._operations(messages, bodies, bad)
        payloads = [*self._decode(messages, bodies, bad), *self._deletions(messages, operations, bad)]
        indexes, table = _in_order(payloads, self._payload_columns)
        if table is not None:
            batch = self._assemble(messages, indexes, table, operations, bad)
            if self.payload.has_operation:
                for row, text in unknown_operations(batch).items():
                    bad[indexes[row]] = self.bad_row("unknown_operation", text, messages[indexes[row]])
            yield from _insert_bad(batch, indexes, bad)
        else:
            yield from (bad[index] for index in sorted(bad))

    @property
    def _payload_columns(self) -> list[str]:
        extra = {PARTITION, OFFSET, TIME} if self.metadata else set()
        if not self.payload.has_operation:
            extra.add(OPERATION_COLUMN)
        return [f.name for f in self.columns if f.name not in extra]

    def _bodies(self, messages: Sequence[Any], bad: dict[int, BadRow]) -> Bodies:
        values = [message.value() for message in messages]
        if (uniform := self.payload.split_all(values)) is not None:
            return {uniform[0]: (range(len(messages)), uniform[1])}
        by_schema: dict[int, tuple[list[int], list[bytes]]] = {}
        for index, value in enumerate(values):
            if not value:
                if self.tombstones == "error":
                    bad[index] = self.bad_row("tombstone", "the message has no payload", messages[index])
                continue
            parts = self.payload.split(value)
            if isinstance(parts, str):
                bad[index] = self.bad_row("decode_error", parts, messages[index])
                continue
            indexes, bodies = by_schema.setdefault(parts[0], ([], []))
            indexes.append(index)
            bodies.append(parts[1])
        return {**by_schema}

    def _operations(self, messages: Sequence[Any], bodies: Bodies, bad: dict[int, BadRow]) -> bytearray:
        """The operation of every message, from its header; for messages without payload it is not used."""
        headers = [message.headers() for message in messages]
        try:
            return bytearray([_HEADERS[one[0]] for one in headers])
        except (IndexError, KeyError, TypeError):  # some have none, or others before it
            pass
        operations = bytearray(_INSERT * len(messages))
        if not any(headers):
            return operations
        for index in (index for indexes, _ in bodies.values() for index in indexes):
            for name, value in headers[index] or ():
                if name == OPERATION_HEADER or name.lower() == OPERATION_HEADER:
                    operation = _OPERATIONS.get(value)
                    if operation is None:
                        content = "null" if value is None else repr(value.decode(errors="backslashreplace"))
                        text = f"the header {name} is {content}; it must be r, c, u or d"
                        bad[index] = self.bad_row("unknown_operation", text, messages[index])
                    else:
                        operations[index] = operation
                    break
        return operations

    def _decode(self, messages: Sequence[Any], bodies: Bodies, bad: dict[int, BadRow]) -> Iterator[Payloads]:
        for id_, (indexes, values) in bodies.items():
            at = 0
            with _naming_message(self.topic, messages[indexes[0]]):
                decoder = self.payload.decoder(id_, self.connection)
            for item in decoder.rows(values):
                if isinstance(item, BadBody):
                    index = indexes[at]
                    bad.setdefault(index, self.bad_row(item.reason, item.message, messages[index]))
                    at += 1
                else:
                    yield indexes[at : at + item.num_rows], item
                    at += item.num_rows

    def _deletions(
        self, messages: Sequence[Any], operations: bytearray | None, bad: dict[int, BadRow]
    ) -> Iterator[Payloads]:
        """Rows of messages without payload: only the key columns have values."""
        if self.tombstones != "delete":
            return
        columns = [f for f in self.columns if f.name in self.key]
        keyed = [next(f for f in columns if f.name == name) for name in self.key]
        indexes, rows = [], []
        for index, message in enumerate(messages):
            if not message.value():
                try:
                    with _naming_message(self.topic, message):
                        rows.append(key_values(message.key(), keyed, self.connection))
                except ValueError as error:
                    bad[index] = self.bad_row("tombstone", str(error), message)
                    continue
                indexes.append(index)
                if operations is not None:
                    operations[index] = _DELETE
        if indexes:
            yield indexes, self._key_columns(rows)

    def _key_columns(self, rows: list[list[Any]]) -> pa.RecordBatch:
        values = dict(zip(self.key, zip(*rows, strict=True), strict=True))
        if self.payload.has_operation:
            values[OPERATION_COLUMN] = ("d",) * len(rows)
        schema, names = arrow_schema(self.columns), self._payload_columns
        types = [schema.field(name).type for name in names]
        columns = [
            pa.array(values[name], type_) if name in values else pa.nulls(len(rows), type_)
            for name, type_ in zip(names, types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _assemble(
        self,
        messages: Sequence[Any],
        indexes: Sequence[int],
        table: pa.Table,
        operations: bytearray | None,
        bad: dict[int, BadRow],
    ) -> pa.RecordBatch:
        extra: dict[str, pa.Array] = {}
        whole = len(indexes) == len(messages)
        if operations is not None:
            extra[OPERATION_COLUMN] = _letters(operations if whole else bytes(operations[n] for n in indexes))
        if self.metadata:
            with_rows = messages if whole else [messages[n] for n in indexes]
            if PARTITION in self.columns:
                extra[PARTITION] = pa.array([m.partition() for m in with_rows], pa.int32())
            if OFFSET in self.columns:
                extra[OFFSET] = pa.array([m.offset() for m in with_rows], pa.int64())
            if TIME in self.columns:
                extra[TIME] = self._times(with_rows, indexes, bad)
        schema = arrow_schema(self.columns)
        columns = [extra[f.name] if f.name in extra else _single_array(table.column(f.name)) for f in schema]
        columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _times(self, messages: Sequence[Any], indexes: Sequence[int], bad: dict[int, BadRow]) -> pa.Array:
        """The timestamps of messages. A producer can send any number; one out of range makes its message bad."""
        times = [message.timestamp()[1] for message in messages]
        if max(times) > _LATEST_MS or min(times) < -_LATEST_MS:
            for row, time in enumerate(times):
                if abs(time) > _LATEST_MS:
                    text = f"column '{TIME}': {time} milliseconds since 1970 is not a valid timestamp"
                    bad.setdefault(indexes[row], self.bad_row("schema_mismatch", text, messages[row]))
                    times[row] = 0
        return pa.array(times, pa.int64()).cast(pa.timestamp("ms"))


def _letters(text: bytes | bytearray) -> pa.Array:
    """A text column with one letter per row."""
    offsets = np.arange(len(text) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(text), pa.py_buffer(offsets), pa.py_buffer(bytes(text)))


def _single_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _in_order(payloads: Sequence[Payloads], names: Sequence[str]) -> tuple[Sequence[int], pa.Table | None]:
    """The indexes of messages, ascending, and a row of payload columns for each."""
    if not payloads:
        return [], None
    table = pa.Table.from_batches([batch.select(names) for _, batch in payloads])
    if len(payloads) == 1:
        return payloads[0][0], table
    indexes = [index for some, _ in payloads for index in some]
    if any(before > after for before, after in pairwise(indexes)):
        order = sorted(range(len(indexes)), key=indexes.__getitem__)
        table, indexes = table.take(pa.array(order)) if names else table, [indexes[n] for n in order]
    return indexes, table


@contextmanager
def _naming_message(topic: str, message: Any) -> Iterator[None]:
    """Adds topic, partition and offset of the message to an error."""
    try:
        yield
    except StreamlingError as error:
        place = f"topic '{topic}', partition {message.partition()}, offset {message.offset()}"
        error.message = f"{place}: {error.message}"
        error.args = (error.message,)
        raise


def _insert_bad(
    batch: pa.RecordBatch, indexes: Sequence[int], bad: dict[int, BadRow]
) -> Iterator[pa.RecordBatch | BadRow]:
    """The rows with the bad rows in their places; a bad message has no other row."""
    if not bad:
        yield batch
        return
    start = 0
    for index in sorted(bad):
        end = start
        while end < len(indexes) and indexes[end] < index:
            end += 1
        if end > start:
            yield batch.slice(start, end - start)
        yield bad[index]
        start = end + 1 if end < len(indexes) and indexes[end] == index else end
    if start < len(indexes):
        yield batch.slice(start)
