"""Messages as rows of the source: payload, metadata and operation, with the bad ones in their places.

What costs Python something per message is kept to list comprehensions: its value, the first bytes of it, its body and
its headers, each once. Where all messages of a chunk have one schema, and a known operation as their first header or
no headers at all, nothing else is done message by message; others are looked at one by one.
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
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.spec.settings.blocks import KafkaConnection

OPERATION_HEADER = "dbz.op"
_OPERATIONS = {b"r": ord("i"), b"c": ord("i"), b"u": ord("u"), b"d": ord("d")}
_HEADERS = {(OPERATION_HEADER, value): operation for value, operation in _OPERATIONS.items()}
_INSERT, _DELETE = b"i", ord("d")
Bodies = dict[int, tuple[Sequence[int], list[bytes]]]
"""Places of messages and their bodies, by the schema they were written with."""
Placed = tuple[Sequence[int], pa.RecordBatch]
"""Places of messages and their payload columns."""
# Carried as microseconds.
_LATEST_MS = (2**63 - 1) // 1000
PARTITION, OFFSET, TIME = "__kafka_partition", "__kafka_offset", "__kafka_timestamp"


@dataclass(frozen=True, slots=True)
class MessageRows:
    """`tombstones` is what a message without payload is: `skip`, `delete` with the columns `key`, or `error`."""

    topic: str
    columns: Schema
    payload: AvroPayload | JsonPayload
    connection: KafkaConnection
    metadata: bool
    tombstones: str
    key: tuple[str, ...]

    def rows(self, messages: Sequence[Any]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        """The rows of messages of one partition, in order."""
        bad: dict[int, BadRow] = {}
        bodies = self._bodies(messages, bad)
        empty = len(messages) - len(bad) - sum(len(places) for places, _ in bodies.values())
        if empty and self.tombstones == "skip":
            yield Counted("tombstones_skipped", empty)
        operations = None if self.payload.own_operation else self._operations(messages, bodies, bad)
        decoded = [*self._decoded(messages, bodies, bad), *self._deletions(messages, operations, bad)]
        places, table = _in_order(decoded, self._payload_columns)
        if table is not None:
            batch = self._shaped(messages, places, table, operations, bad)
            if self.payload.own_operation:
                for index, text in unknown_operations(batch).items():
                    bad[places[index]] = _bad("unknown_operation", text, self.topic, messages[places[index]])
            yield from _around(batch, places, bad)
        else:
            yield from (bad[index] for index in sorted(bad))

    @property
    def _payload_columns(self) -> list[str]:
        made = {PARTITION, OFFSET, TIME} if self.metadata else set()
        if not self.payload.own_operation:
            made.add(OPERATION_COLUMN)
        return [f.name for f in self.columns if f.name not in made]

    def _bodies(self, messages: Sequence[Any], bad: dict[int, BadRow]) -> Bodies:
        values = [message.value() for message in messages]
        alike = self.payload.alike(values)
        if alike is not None:
            return {alike[0]: (range(len(messages)), alike[1])}
        found: dict[int, tuple[list[int], list[bytes]]] = {}
        for index, value in enumerate(values):
            if not value:
                if self.tombstones == "error":
                    bad[index] = _bad("tombstone", "the message has no payload", self.topic, messages[index])
                continue
            parts = self.payload.split(value)
            if isinstance(parts, str):
                bad[index] = _bad("decode_error", parts, self.topic, messages[index])
                continue
            places, bodies = found.setdefault(parts[0], ([], []))
            places.append(index)
            bodies.append(parts[1])
        return {**found}

    def _operations(self, messages: Sequence[Any], bodies: Bodies, bad: dict[int, BadRow]) -> bytearray:
        """The operation of every message as its header says; of those without payload nobody asks for it."""
        headers = [message.headers() for message in messages]
        try:
            return bytearray([_HEADERS[one[0]] for one in headers])
        except (IndexError, KeyError, TypeError):  # some have none, or others before it
            pass
        found = bytearray(_INSERT * len(messages))
        if not any(headers):
            return found
        for index in (place for places, _ in bodies.values() for place in places):
            for name, value in headers[index] or ():
                if name == OPERATION_HEADER or name.lower() == OPERATION_HEADER:
                    operation = _OPERATIONS.get(value)
                    if operation is None:
                        shown = "null" if value is None else repr(value.decode(errors="backslashreplace"))
                        text = f"the header {name} is {shown}; it must be r, c, u or d"
                        bad[index] = _bad("unknown_operation", text, self.topic, messages[index])
                    else:
                        found[index] = operation
                    break
        return found

    def _decoded(self, messages: Sequence[Any], bodies: Bodies, bad: dict[int, BadRow]) -> Iterator[Placed]:
        for id_, (places, values) in bodies.items():
            at = 0
            with _placed(self.topic, messages[places[0]]):
                decoder = self.payload.decoder(id_, self.connection)
            for item in decoder.rows(values):
                if isinstance(item, BadBody):
                    bad.setdefault(places[at], _bad(item.reason, item.message, self.topic, messages[places[at]]))
                    at += 1
                else:
                    yield places[at : at + item.num_rows], item
                    at += item.num_rows

    def _deletions(
        self, messages: Sequence[Any], operations: bytearray | None, bad: dict[int, BadRow]
    ) -> Iterator[Placed]:
        """Rows of messages without payload: the key, and nothing else."""
        if self.tombstones != "delete":
            return
        columns = [f for f in self.columns if f.name in self.key]
        keyed = [next(f for f in columns if f.name == name) for name in self.key]
        places, rows = [], []
        for index, message in enumerate(messages):
            if not message.value():
                try:
                    with _placed(self.topic, message):
                        rows.append(key_values(message.key(), keyed, self.connection))
                except ValueError as error:
                    bad[index] = _bad("tombstone", str(error), self.topic, message)
                    continue
                places.append(index)
                if operations is not None:
                    operations[index] = _DELETE
        if places:
            yield places, self._keys_only(rows)

    def _keys_only(self, rows: list[list[Any]]) -> pa.RecordBatch:
        values = dict(zip(self.key, zip(*rows, strict=True), strict=True))
        if self.payload.own_operation:
            values[OPERATION_COLUMN] = ("d",) * len(rows)
        schema, names = arrow_schema(self.columns), self._payload_columns
        types = [schema.field(name).type for name in names]
        columns = [
            pa.array(values[name], type_) if name in values else pa.nulls(len(rows), type_)
            for name, type_ in zip(names, types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _shaped(
        self,
        messages: Sequence[Any],
        places: Sequence[int],
        table: pa.Table,
        operations: bytearray | None,
        bad: dict[int, BadRow],
    ) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {}
        whole = len(places) == len(messages)
        if operations is not None:
            made[OPERATION_COLUMN] = _letters(operations if whole else bytes(operations[n] for n in places))
        if self.metadata:
            kept = messages if whole else [messages[n] for n in places]
            if PARTITION in self.columns:
                made[PARTITION] = pa.array([m.partition() for m in kept], pa.int32())
            if OFFSET in self.columns:
                made[OFFSET] = pa.array([m.offset() for m in kept], pa.int64())
            if TIME in self.columns:
                made[TIME] = self._times(kept, places, bad)
        schema = arrow_schema(self.columns)
        columns = [made[f.name] if f.name in made else _joined(table.column(f.name)) for f in schema]
        columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _times(self, messages: Sequence[Any], places: Sequence[int], bad: dict[int, BadRow]) -> pa.Array:
        """When the messages were made. A producer may say anything; what no timestamp can be makes its message bad."""
        times = [message.timestamp()[1] for message in messages]
        if max(times) > _LATEST_MS or min(times) < -_LATEST_MS:
            for index, time in enumerate(times):
                if abs(time) > _LATEST_MS:
                    text = f"column '{TIME}': {time} milliseconds since 1970 is no timestamp"
                    bad.setdefault(places[index], _bad("schema_mismatch", text, self.topic, messages[index]))
                    times[index] = 0
        return pa.array(times, pa.int64()).cast(pa.timestamp("ms"))


def _letters(text: bytes | bytearray) -> pa.Array:
    """A column of texts of one letter each."""
    offsets = np.arange(len(text) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(text), pa.py_buffer(offsets), pa.py_buffer(bytes(text)))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _in_order(decoded: Sequence[Placed], names: Sequence[str]) -> tuple[Sequence[int], pa.Table | None]:
    """Places of the rows, ascending, and these of their payload columns."""
    if not decoded:
        return [], None
    table = pa.Table.from_batches([batch.select(names) for _, batch in decoded])
    if len(decoded) == 1:
        return decoded[0][0], table
    places = [place for part, _ in decoded for place in part]
    if any(before > after for before, after in pairwise(places)):
        order = sorted(range(len(places)), key=places.__getitem__)
        table, places = table.take(pa.array(order)) if names else table, [places[n] for n in order]
    return places, table


@contextmanager
def _placed(topic: str, message: Any) -> Iterator[None]:
    """Say of an error which message has led to it."""
    try:
        yield
    except StreamlingError as error:
        place = f"topic '{topic}', partition {message.partition()}, offset {message.offset()}"
        error.message = f"{place}: {error.message}"
        error.args = (error.message,)
        raise


def _bad(reason: str, text: str, topic: str, message: Any) -> BadRow:
    headers = message.headers()
    return BadRow(
        reason,
        text,
        {"topic": topic, "partition": message.partition(), "offset": message.offset()},
        raw=message.value(),
        raw_key=message.key(),
        headers=None if headers is None else tuple(headers),
    )


def _around(batch: pa.RecordBatch, places: Sequence[int], bad: dict[int, BadRow]) -> Iterator[pa.RecordBatch | BadRow]:
    """The rows with the bad ones in their places; a row whose place is bad is left out."""
    if not bad:
        yield batch
        return
    start = 0
    for index in sorted(bad):
        end = start
        while end < len(places) and places[end] < index:
            end += 1
        if end > start:
            yield batch.slice(start, end - start)
        yield bad[index]
        start = end + 1 if end < len(places) and places[end] == index else end
    if start < len(places):
        yield batch.slice(start)
