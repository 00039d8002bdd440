"""The control side: which partitions are ours, how far they go, what comes next."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from streamling.clients.kafka import Broker
from streamling.connector import (
    BatchPolicy,
    Extent,
    Json,
    Offer,
    Projection,
    Room,
    Runtime,
    Slice,
    Source,
    SourceCapabilities,
)
from streamling.errors import OFFSETS_GONE, SOURCE_FAILED, PermanentError
from streamling.plan.sql import Expression
from streamling.plan.sql.values import identifier
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sources.kafka.control import Control, Watching
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.sources.kafka.reader import CONSUMERS, KafkaReader
from streamling.sources.kafka.stretch import Stretch
from streamling.spec.settings.blocks import KafkaConnection
from streamling.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# How often the broker is asked for the ends of partitions that nothing is heard of.
_ASK_S = 1.0
# Each has a connection of its own.
_LISTENED_TO = 32
# A broker that has just taken over a partition may know less of it, for a moment.
_SHORT_S = 10.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the options say of a source. `start` is earliest, latest or milliseconds; `on_missing` may be fail too."""

    node: str
    name: str
    topic: str
    group: str
    start: str
    on_missing: str
    metadata: bool
    tombstones: str
    first_fetch: float
    """Warn if no message has arrived after this many seconds."""
    readers: int | None = None
    """Most parts that are read side by side, each of them a whole stretch of a partition."""
    batch: BatchPolicy | None = None


class KafkaSource(Source):
    """Offers the stretches of its partitions between what was read and what the broker has."""

    def __init__(
        self,
        reading: Reading,
        watching: Watching,
        connection: KafkaConnection,
        payload: Callable[[Schema], tuple[AvroPayload | JsonPayload, tuple[str, ...]]],
        condition: Callable[[Schema], Expression | None],
    ) -> None:
        self._reading, self._connection = reading, connection
        self.capabilities = SourceCapabilities(
            shared=True, takes_back=True, max_readers=reading.readers, batch=reading.batch
        )
        self._payload, self._condition = payload, condition
        self._control = Control(watching, connection)
        self._metrics, self._labels = Metrics(), watching.labels
        self._partitions: frozenset[int] = frozenset()
        self._offered = False
        self._ends: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._stored: dict[str, Json] = {}

    def prepare(self, columns: Schema, read: Collection[str]) -> None:
        self._decoding, self._row_key = self._payload(columns)
        key = self._row_key if self._reading.tombstones == "delete" else ()
        kept = frozenset((*read, OPERATION_COLUMN, *key)).intersection(columns.names)
        condition = self._condition(columns)
        if condition is not None:
            self.select = Projection(
                tuple((identifier(f.name), f.name) for f in columns if f.name in kept),
                condition.text,
                reads=kept | condition.reads,
                functions=condition.functions,
                parameters=condition.parameters,
            )
        needed = kept if self.select is None else self.select.reads
        # All are decoded, for a message is good or bad as a whole. Columns that no node reads need not go to Spark.
        self.columns = Schema(tuple(f for f in columns if f.name in needed))

    def attach(self, runtime: Runtime) -> None:
        self._metrics = runtime.metrics

    # Which partitions

    def join(self, changed: Callable[[], None]) -> None:
        self._control.start(changed, self._metrics)

    def assigned(self) -> frozenset[str]:
        return frozenset(self._key(number) for number in self._control.assigned())

    def own(self, keys: frozenset[str]) -> None:
        self._partitions = frozenset(_partition(key) for key in keys)
        self._control.own(self._partitions)

    def open(self, positions: Mapping[str, Json]) -> None:
        prefix = self._key("")
        self._stored = {key: value for key, value in positions.items() if key.startswith(prefix)}
        self._next, self._ends = {}, {}
        self._unnoted: set[int] = set()
        self._served = -1
        self._short_since: float | None = None
        self._quiet_since = time.monotonic()
        self._asked = 0.0
        self._listener = self.reader()

    def _key(self, partition: int | str) -> str:
        return f"{self._reading.node}:{self._reading.topic}:{partition}"

    @property
    def bounded(self) -> bool:
        return False

    @property
    def ended(self) -> bool:
        return False

    # What comes next

    def offer(self, room: Room) -> Offer | None:
        broker = self._control.broker
        if not self._partitions or broker is None:
            return None
        if len(self._next) < len(self._partitions):
            self._begin(broker)
        if self._all_quiet():
            return None
        self._asked = time.monotonic()
        self._ends = {**self._ends, **broker.end(self._next)}
        self._look_back(broker)
        rows = room.rows
        waiting = self._in_turn([n for n, at in self._next.items() if self._ends[n] > at or n in self._unnoted], rows)
        slices = []
        for place, number in enumerate(waiting):
            # What a short partition leaves is for the others.
            share = max(1, rows // (len(waiting) - place))
            slices.append(self._slice(number, share, room, len(waiting)))
            rows = max(0, rows - slices[-1].rows)
        if any(s.rows for s in slices):
            self._offered = True
            self._control.moved()
        elif not self._offered:
            self._say_quiet()
        left = sum(max(0, self._ends[number] - at) for number, at in self._next.items())
        return Offer(tuple(slices), waiting=left) if slices else None

    def _in_turn(self, waiting: Collection[int], most: int) -> list[int]:
        """Those that are served: if there is no room for all, the others come next time."""
        behind = sorted(waiting, key=lambda number: (number <= self._served, number))[:most]
        self._served = behind[-1] if len(behind) < len(waiting) else -1
        return sorted(behind)

    def _all_quiet(self) -> bool:
        """Nothing is left of what is known, and no consumer has heard of more. The broker knows better, and is asked a
        bit later: offsets without messages, for instance, nobody hears of."""
        if time.monotonic() - self._asked > _ASK_S or len(self._next) > _LISTENED_TO or self._unnoted:
            return False
        if any(self._ends[number] > at for number, at in self._next.items()):
            return False
        reader = self._listener
        return not any(reader.heard(number, at) for number, at in self._next.items())

    def _slice(self, number: int, rows: int, room: Room, among: int) -> Slice:
        first = self._next[number]
        end = min(self._ends[number], first + rows)
        key = self._key(number)
        parts_each = 1 if self._reading.readers else max(1, room.parts // among)
        cut = Room(rows, parts_each, room.part_rows).cut(first, end) if end > first else ()
        position = _position(end)
        schema = self._decoding.schema_id
        parts = tuple(Stretch(number, start, stop, schema).to_json() for start, stop in cut)
        found = Slice(self._reading.node, key, self._stored.get(key), position, parts, end - first)
        self._next[number], self._stored[key] = end, position
        self._unnoted.discard(number)
        return found

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        """Messages were longer than the ones before them let expect."""
        if not slice_.parts:
            return slice_
        parts = [Stretch.of(part) for part in slice_.parts]
        number, first, end = parts[0].partition, parts[0].first, parts[-1].end
        at = place if isinstance(place, int) else first
        if at >= end:
            return slice_
        self._next[number] = at
        if at > first:
            position = self._stored[slice_.key] = _position(at)
            left = tuple(replace(part, end=min(part.end, at)).to_json() for part in parts if part.first < at)
            return replace(slice_, end=position, parts=left, rows=at - first)
        if slice_.start is not None:
            self._stored[slice_.key] = slice_.start
        else:
            del self._stored[slice_.key]
            self._note_start([number])
        return None

    def _say_quiet(self) -> None:
        """An idle topic is no error."""
        now = time.monotonic()
        if now - self._quiet_since >= self._reading.first_fetch:
            self._quiet_since = now
            text = "source %s: initial fetch timed out after %g s, trying again"
            log.debug(text, self._reading.name, self._reading.first_fetch)

    # Where reading starts

    def _begin(self, broker: Broker) -> None:
        """Find out where partitions start that have come."""
        new = [number for number in sorted(self._partitions) if number not in self._next]
        first, ends = broker.first(new), broker.end(new)
        starts = self._starts(broker, new, first, ends)
        found = {number: self._resumed(number, first, ends, starts[number]) for number in new}
        self._next.update(found)
        self._ends.update(ends)
        self._control.durable(found, tell=False)
        self._check_readers(len(self._next))
        self._note_start([number for number in new if self._key(number) not in self._stored])

    def _note_start(self, partitions: Collection[int]) -> None:
        """Stored at once, if there is a choice: whoever has a partition next must not choose another start."""
        if self._reading.start != "earliest":
            self._unnoted.update(partitions)

    def _check_readers(self, partitions: int) -> None:
        asked = self._reading.readers
        if asked and asked > partitions:
            text = "source %s: parallelism is %d, but it has %d partitions of topic '%s' to read, and no more readers"
            log.warning(text, self._reading.name, asked, partitions, self._reading.topic)

    def _starts(
        self, broker: Broker, partitions: Collection[int], first: Mapping[int, int], ends: Mapping[int, int]
    ) -> Mapping[int, int]:
        # In a partition that appears while reading, nothing may be skipped.
        fresh = {number: first[number] for number in partitions if self._control.is_new(number)}
        match self._reading.start:
            case "earliest":
                return first
            case "latest":
                return {**ends, **fresh}
        return {**broker.at(partitions, int(self._reading.start)), **fresh}

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

    def _look_back(self, broker: Broker) -> None:
        """A log that ends before what was read of it was made anew, or has lost its end: nothing would ever come."""
        short = [number for number, at in self._next.items() if self._ends[number] < at]
        if not short:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = time.monotonic()
        elif time.monotonic() - self._short_since > _SHORT_S:
            first = broker.first(short)
            self._next.update({number: self._resumed(number, first, self._ends, first[number]) for number in short})

    # What an earlier run has recorded

    def recall(self, slices: Sequence[Slice]) -> tuple[Slice, ...]:
        """What is left of them. Rows of a recorded epoch that are gone cannot be brought to anybody any more."""
        broker = self._control.broker or Broker(self._connection, self._reading.topic, SOURCE_FAILED)
        stretches = [[Stretch.of(part) for part in s.parts] for s in slices]
        numbers = {part.partition for parts in stretches for part in parts}.intersection(broker.partitions())
        first, ends = broker.first(numbers), broker.end(numbers)
        return tuple(
            replace(s, parts=tuple(self._left(part, first, ends).to_json() for part in parts))
            for s, parts in zip(slices, stretches, strict=True)
        )

    def _left(self, part: Stretch, first: Mapping[int, int], ends: Mapping[int, int]) -> Stretch:
        low, high = first.get(part.partition, 0), ends.get(part.partition, 0)
        begin = min(max(part.first, low), part.end)
        end = max(begin, min(part.end, high))
        if gone := part.end - part.first - (end - begin):
            log.warning(
                "source %s: an unfinished epoch is read again, and partition %d of topic '%s' no longer has %d of its "
                "offsets %d to %d: it has %d up to %d",
                self._reading.name,
                part.partition,
                self._reading.topic,
                gone,
                part.first,
                part.end,
                low,
                high,
            )
        return replace(part, first=begin, end=end, recalled=True)

    # The rest of the contract

    def extent(self) -> Extent | None:
        ends = dict(self._ends)
        done = dict(self._next)
        if not done:
            return None
        behind = sum(max(0, ends.get(number, at) - at) for number, at in done.items())
        read = sum(done.values())
        return Extent(read, read + behind, "rows")

    def count(self, counts: Mapping[str, int]) -> None:
        for what, count in counts.items():
            self._metrics.count(f"kafka_consumer.{what}", count, self._labels)

    def trouble(self) -> str | None:
        return self._control.trouble

    def reader(self) -> KafkaReader:
        reading = self._reading
        return KafkaReader(
            reading.name,
            reading.topic,
            reading.group,
            self._connection,
            self._decoding,
            self.columns,
            reading.metadata,
            reading.tombstones,
            self._row_key,
            patient=reading.on_missing != "fail",
        )

    def committed(self, slices: Sequence[Slice]) -> None:
        """Told to the broker's group, for those who look there."""
        ends = {_partition(s.key): s.end["offset"] for s in slices if isinstance(s.end, dict)}
        self._control.durable({number: end for number, end in ends.items() if isinstance(end, int)})

    def close(self) -> None:
        CONSUMERS.close(self._reading.group)
        self._control.close()


def _position(offset: int) -> Json:
    return {"offset": offset, "updated_at": time.time_ns() // 1_000_000}


def _partition(key: str) -> int:
    return int(key.rpartition(":")[2])
