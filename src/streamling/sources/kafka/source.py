"""The control side: which partitions there are, how far they go, what comes next."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamling.errors import OFFSETS_GONE, SOURCE_FAILED, PermanentError
from streamling.plan.sql.values import identifier
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.plugin import Extent, Json, Offer, Projection, Room, Slice
from streamling.sources.kafka.client import Broker, client_settings
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.sources.kafka.reader import CONSUMERS, KafkaReader
from streamling.spec.blocks import KafkaSource as Connection

log = logging.getLogger(__name__)

# A first look at how long messages are.
_FIRST_ROWS = 1000
_LIKELY_BYTES = 1024
# An offer that is read in the driver stands in memory as a whole.
_SMALL_BYTES = 32 << 20
_LARGE_BYTES = 1 << 30
# How soon a partition is noticed that was added to the topic.
_LOOK_S = 30.0
_COMMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the options say of a source. `start` is earliest, latest or milliseconds; `on_missing` may be fail too."""

    node: str
    name: str
    topic: str
    start: str
    on_missing: str
    metadata: bool
    tombstones: str
    driver_rows: int


class KafkaSource:
    """Offers the stretches of all partitions between what was read and what the broker has."""

    select: Projection | None = None

    def __init__(
        self,
        reading: Reading,
        connection: Connection,
        payload: Callable[[Schema], tuple[AvroPayload | JsonPayload, tuple[str, ...]]],
        condition: Callable[[Schema], Projection | None],
    ) -> None:
        self._reading, self._connection = reading, connection
        self._payload, self._condition = payload, condition
        prefix = connection.consumer_group_id or str(uuid.uuid4())
        self._group = f"{prefix}-{reading.node}"
        self._broker: Broker | None = None
        self._committer: Any = None
        self._offered = False
        self._ends: dict[int, int] = {}
        self._next: dict[int, int] = {}

    def planned(self, columns: Schema, read: Collection[str]) -> None:
        self._decoding, self._row_key = self._payload(columns)
        key = self._row_key if self._reading.tombstones == "delete" else ()
        kept = {*read, OPERATION_COLUMN, *key}
        condition, text = self._condition(columns), ""
        if condition is not None:
            text = condition.condition or ""
            self.select = replace(condition, columns=tuple(c for c in condition.columns if c[1] in kept))
        # All are decoded, for a message is good or bad as a whole. What nobody looks at need not go to Spark.
        self.columns = Schema(tuple(f for f in columns if f.name in kept or identifier(f.name) in text))

    def open(self, positions: Mapping[str, Json]) -> None:
        prefix = self._key("")
        self._stored = {key: value for key, value in positions.items() if key.startswith(prefix)}
        self._next = {}
        self._looked = 0.0

    def _key(self, partition: int | str) -> str:
        return f"{self._reading.node}:{self._reading.topic}:{partition}"

    @property
    def bounded(self) -> bool:
        return False

    @property
    def ended(self) -> bool:
        return False

    def offer(self, room: Room) -> Offer | None:
        broker = self._broker = self._broker or Broker(self._connection, self._reading.topic)
        if not self._next or time.monotonic() - self._looked > _LOOK_S:
            self._look(broker)
        self._ends = {**self._ends, **broker.end(self._next)}
        waiting = sorted(number for number, at in self._next.items() if self._ends[number] > at)
        slices = []
        rows = self._rows(room)
        for place, number in enumerate(waiting):
            # What a short partition leaves is for the others.
            share = max(1, rows // (len(waiting) - place))
            slices.append(self._slice(number, share, room, len(waiting)))
            rows = max(0, rows - slices[-1].rows)
            if not rows:
                break
        self._offered = self._offered or bool(slices)
        left = sum(max(0, self._ends[number] - at) for number, at in self._next.items())
        return Offer(tuple(slices), waiting=left) if slices else None

    def _slice(self, number: int, rows: int, room: Room, among: int) -> Slice:
        first = self._next[number]
        end = min(self._ends[number], first + rows)
        key = self._key(number)
        cut = Room(rows, max(1, room.parts // among), room.part_rows).cut(first, end)
        position: Json = {"offset": end, "updated_at": time.time_ns() // 1_000_000}
        parts: tuple[Json, ...] = tuple([number, start, stop] for start, stop in cut)
        found = Slice(self._reading.node, key, self._stored.get(key), position, parts, end - first)
        self._next[number], self._stored[key] = end, position
        return found

    def _rows(self, room: Room) -> int:
        """How many rows an offer may have, by the length of messages seen so far."""
        size = CONSUMERS.row_bytes.get(self._reading.topic)
        if size is None and not self._offered:
            return min(room.rows, _FIRST_ROWS)
        size = size or _LIKELY_BYTES  # executors have read, and this process knows nothing of it
        large = min(room.rows, int(_LARGE_BYTES / (size + 1)))
        small = min(self._reading.driver_rows, int(_SMALL_BYTES / (size + 1)))
        return max(1, large if large > self._reading.driver_rows else min(room.rows, small))

    # Where reading starts

    def _look(self, broker: Broker) -> None:
        """Find the partitions there are by now, and where new ones start."""
        partitions = broker.partitions()
        new = [number for number in partitions if number not in self._next]
        if new:
            first = broker.first(new)
            ends = broker.end(new)
            # In a partition that appears while reading, nothing may be skipped.
            starts = first if self._next else self._starts(broker, new, first, ends)
            found = {number: self._resumed(number, first, ends, starts[number]) for number in new}
            self._next.update(found)
            self._ends.update(ends)
        self._looked = time.monotonic()

    def _starts(
        self, broker: Broker, partitions: Collection[int], first: Mapping[int, int], ends: Mapping[int, int]
    ) -> Mapping[int, int]:
        match self._reading.start:
            case "earliest":
                return first
            case "latest":
                return ends
        return broker.at(partitions, int(self._reading.start))

    def _resumed(self, number: int, first: Mapping[int, int], ends: Mapping[int, int], start: int) -> int:
        """The offset to begin with: the stored one, if it is still there."""
        value = self._stored.get(self._key(number))
        if value is None:
            return start
        stored = value.get("offset") if isinstance(value, dict) else None
        if not isinstance(stored, int):
            raise PermanentError(
                SOURCE_FAILED,
                f"the stored position of {self._key(number)} is no offset: {value}",
                node=self._reading.name,
            )
        low, high = first[number], ends[number]
        if low <= stored <= high:
            return stored
        topic, policy = self._reading.topic, self._reading.on_missing
        text = (
            f"partition {number} of topic '{topic}' no longer has the stored offset {stored}: it has {low} up to {high}"
        )
        if policy == "fail":
            raise PermanentError(
                OFFSETS_GONE,
                text,
                node=self._reading.name,
                hint="set on_missing_offsets to earliest or latest, or `streamling state reset` and start anew",
            )
        begin = low if policy == "earliest" else high
        gone = f"; {begin - stored} rows are gone" if begin > stored else ""
        log.warning("source %s: %s; going on at %d%s", self._reading.name, text, begin, gone)
        return begin

    # The rest of the contract

    def extent(self) -> Extent | None:
        ends = dict(self._ends)
        done = dict(self._next)
        if not done:
            return None
        behind = sum(max(0, ends.get(number, at) - at) for number, at in done.items())
        read = sum(done.values())
        return Extent(read, read + behind, "rows")

    def reader(self) -> KafkaReader:
        reading = self._reading
        return KafkaReader(
            reading.name,
            reading.topic,
            self._group,
            self._connection,
            self._decoding,
            self.columns,
            reading.metadata,
            reading.tombstones,
            self._row_key,
        )

    def committed(self, slices: Sequence[Slice]) -> None:
        """Tell the broker's group, for those who look there. Of a group of one run nobody knows."""
        if self._connection.consumer_group_id is None:
            return
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        if self._committer is None:
            settings = {"group.id": self._group, "enable.auto.commit": False}
            self._committer = Consumer({**client_settings(self._connection), **settings})
        places = [
            TopicPartition(self._reading.topic, int(s.key.rpartition(":")[2]), s.end["offset"])
            for s in slices
            if isinstance(s.end, dict)
        ]
        try:
            self._committer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            log.warning("source %s: group %s was not told: %s", self._reading.name, self._group, error.args[0].str())

    def close(self) -> None:
        CONSUMERS.close(self._connection.brokers, self._reading.topic)
        committer, self._committer = self._committer, None
        if committer is not None:
            committer.close()
