"""Messages as rows of the source: payload, metadata and operation, with the bad ones in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamling.formats.arrow import arrow_schema, unknown_operations
from streamling.formats.bodies import BadBody
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.plugin import BadRow
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.spec.blocks import KafkaConnection

OPERATION_HEADER = "dbz.op"
_OPERATIONS = {b"r": "i", b"c": "i", b"u": "u", b"d": "d"}
PARTITION, OFFSET, TIME = "__kafka_partition", "__kafka_offset", "__kafka_timestamp"


@dataclass(frozen=True, slots=True)
class MessageRows:
    """`tombstones`: whether a message without payload is bad; else it is nothing."""

    topic: str
    columns: Schema
    payload: AvroPayload | JsonPayload
    connection: KafkaConnection
    metadata: bool
    bad_tombstones: bool

    def rows(self, messages: Sequence[Any]) -> Iterator[pa.RecordBatch | BadRow]:
        """The rows of messages of one partition, in order."""
        bad: dict[int, BadRow] = {}
        bodies = self._bodies(messages, bad)
        operations = None if self.payload.own_operation else self._operations(messages, bodies, bad)
        places, table = self._decoded(messages, bodies, bad)
        if table is not None:
            batch = self._shaped(messages, places, table, operations)
            if self.payload.own_operation:
                for index, text in unknown_operations(batch).items():
                    bad[places[index]] = _bad("unknown_operation", text, self.topic, messages[places[index]])
            yield from _around(batch, places, bad)
        else:
            yield from (bad[index] for index in sorted(bad))

    def _bodies(self, messages: Sequence[Any], bad: dict[int, BadRow]) -> dict[int, tuple[list[int], list[bytes]]]:
        """Places and bodies by the schema they were written with."""
        found: dict[int, tuple[list[int], list[bytes]]] = {}
        split = self.payload.split
        for index, message in enumerate(messages):
            value = message.value()
            if not value:
                if self.bad_tombstones:
                    bad[index] = _bad("tombstone", "the message has no payload", self.topic, message)
                continue
            parts = split(value)
            if isinstance(parts, str):
                bad[index] = _bad("decode_error", parts, self.topic, message)
                continue
            group = found.get(parts[0])
            if group is None:
                group = found[parts[0]] = ([], [])
            group[0].append(index)
            group[1].append(parts[1])
        return found

    def _operations(
        self, messages: Sequence[Any], bodies: dict[int, tuple[list[int], list[bytes]]], bad: dict[int, BadRow]
    ) -> list[str]:
        """The operation of every message as its header says; of those without payload nobody asks for it."""
        asked = (
            None
            if sum(len(places) for places, _ in bodies.values()) == len(messages)
            else {place for places, _ in bodies.values() for place in places}
        )
        found = ["i"] * len(messages)
        for index, message in enumerate(messages):
            headers = message.headers()
            if not headers or (asked is not None and index not in asked):
                continue
            for name, value in headers:
                if name == OPERATION_HEADER or name.lower() == OPERATION_HEADER:
                    operation = _OPERATIONS.get(value)
                    if operation is None:
                        shown = "null" if value is None else repr(value.decode(errors="backslashreplace"))
                        text = f"the header {name} is {shown}; it must be r, c, u or d"
                        bad[index] = _bad("unknown_operation", text, self.topic, message)
                    else:
                        found[index] = operation
                    break
        return found

    def _decoded(
        self, messages: Sequence[Any], bodies: dict[int, tuple[list[int], list[bytes]]], bad: dict[int, BadRow]
    ) -> tuple[list[int], pa.Table | None]:
        """Places of the rows, ascending, and their payload columns."""
        batches: list[pa.RecordBatch] = []
        kept: list[int] = []
        for id_, (places, values) in bodies.items():
            at = 0
            for item in self.payload.decoder(id_, self.connection).rows(values):
                if isinstance(item, BadBody):
                    bad.setdefault(places[at], _bad(item.reason, item.message, self.topic, messages[places[at]]))
                    at += 1
                else:
                    batches.append(item)
                    kept += places[at : at + item.num_rows]
                    at += item.num_rows
        if not batches:
            return [], None
        table = pa.Table.from_batches(batches)
        if len(bodies) > 1:
            order = sorted(range(len(kept)), key=kept.__getitem__)
            table, kept = table.take(pa.array(order)), [kept[n] for n in order]
        return kept, table

    def _shaped(
        self, messages: Sequence[Any], places: list[int], table: pa.Table, operations: list[str] | None
    ) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {}
        if operations is not None:
            values = operations if len(places) == len(operations) else [operations[n] for n in places]
            made[OPERATION_COLUMN] = pa.array(values, pa.string())
        if self.metadata:
            kept = messages if len(places) == len(messages) else [messages[n] for n in places]
            made[PARTITION] = pa.array([m.partition() for m in kept], pa.int32())
            made[OFFSET] = pa.array([m.offset() for m in kept], pa.int64())
            made[TIME] = pa.array([m.timestamp()[1] for m in kept], pa.int64()).cast(pa.timestamp("ms"))
        schema = arrow_schema(self.columns)
        columns = [
            (made[f.name] if f.name in made else table.column(f.name).combine_chunks()).cast(f.type)
            if f.name in made or table.column(f.name).type != f.type
            else table.column(f.name).combine_chunks()
            for f in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _bad(reason: str, text: str, topic: str, message: Any) -> BadRow:
    headers = message.headers()
    return BadRow(
        reason,
        text,
        {"topic": topic, "partition": message.partition(), "offset": message.offset()},
        raw=message.value(),
        raw_key=message.key(),
        headers=None if headers is None else tuple((name, value or b"") for name, value in headers),
    )


def _around(batch: pa.RecordBatch, places: list[int], bad: dict[int, BadRow]) -> Iterator[pa.RecordBatch | BadRow]:
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
