"""The control side of a Kafka source: the partitions of this process, their ends, the next offer."""

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
from streamling.sources.kafka.control import Control, ControlOptions
from streamling.sources.kafka.decoder import KafkaDecoder
from streamling.sources.kafka.locator import METADATA_NAMES, KafkaLocator
from streamling.sources.kafka.part import KafkaPart
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.sources.kafka.reader import CONSUMERS, KafkaReader
from streamling.spec.settings.blocks import KafkaSourceSettings
from streamling.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# How often the broker is asked for the ends of partitions whose consumers receive nothing.
_ASK_S = 1.0
# Most partitions with an open consumer while they are idle: each needs a connection.
_MOST_LISTENERS = 32
# A broker that has just become leader of a partition may report an older end, for a moment.
_SHORT_S = 10.0


@dataclass(frozen=True, slots=True)
class TopicReading:
    """How a source reads its topic. `start` is earliest, latest or milliseconds; `on_missing` may also be fail."""

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
    """Most parts that are read in parallel; each is then a partition of the offer as a whole."""
    batch: BatchPolicy | None = None


class KafkaSource(Source):
    """Offers the offsets of its partitions between the last offer and the end of the log."""

    def __init__(
        self,
        reading: TopicReading,
        control: ControlOptions,
        connection: KafkaSourceSettings,
        make_payload: Callable[[Schema], tuple[AvroPayload | JsonPayload, tuple[str, ...]]],
        make_condition: Callable[[Schema], Expression | None],
    ) -> None:
        self._reading = reading
        self._connection = connection
        self.capabilities = SourceCapabilities(
            shared=True, takes_back=True, max_readers=reading.readers, batch=reading.batch
        )
        self._make_payload = make_payload
        self._make_condition = make_condition
        self._prepared_payload: AvroPayload | JsonPayload | None = None
        self._row_key: tuple[str, ...] = ()
        self._control = Control(control, connection)
        self._metrics = Metrics()
        self._labels = control.labels
        self._partitions: frozenset[int] = frozenset()
        self._has_offered_rows = False
        self._ends: dict[int, int] = {}
        """The offset after the last message, by partition, as the broker last reported it."""
        self._next: dict[int, int] = {}
        """The first offset that was not offered yet, by partition."""
        self._stored: dict[str, Json] = {}
        """The position after the last offer, by key."""
        self._unstored_starts: set[int] = set()
        """Partitions whose start must be stored although they have no rows yet."""
        self._last_served = -1
        self._short_since: float | None = None
        self._quiet_since = 0.0
        self._last_lookup = 0.0

    def prepare(self, columns: Schema, read: Collection[str]) -> None:
        self._prepared_payload, self._row_key = self._make_payload(columns)
        key = self._row_key if self._reading.tombstones == "delete" else ()
        output = frozenset((*read, OPERATION_COLUMN, *key)).intersection(columns.names)
        condition = self._make_condition(columns)
        if condition is not None:
            self.select = Projection(
                tuple((identifier(f.name), f.name) for f in columns if f.name in output),
                condition.text,
                reads=output | condition.reads,
                functions=condition.functions,
                parameters=condition.parameters,
            )
        needed = output if self.select is None else self.select.reads
        # All columns are decoded: a bad value makes a message bad. Columns that no node reads do not go to Spark.
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
        self._next = {}
        self._ends = {}
        self._unstored_starts = set()
        self._last_served = -1
        self._short_since = None
        self._quiet_since = time.monotonic()
        self._last_lookup = 0.0

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
            self._start_partitions(broker)
        if self._is_quiet():
            return None
        self._last_lookup = time.monotonic()
        self._ends = {**self._ends, **broker.end(self._next)}
        self._check_ends(broker)
        rows = room.rows
        waiting = [n for n, at in self._next.items() if self._ends[n] > at or n in self._unstored_starts]
        served = self._in_turn(waiting, rows)
        slices = []
        for place, number in enumerate(served):
            # What a short partition does not use is left for the others.
            share = max(1, rows // (len(served) - place))
            slices.append(self._slice(number, share, room, len(served)))
            rows = max(0, rows - slices[-1].rows)
        if any(s.rows for s in slices):
            self._has_offered_rows = True
            self._control.note_rows()
        elif not self._has_offered_rows:
            self._log_quiet()
        left = sum(max(0, self._ends[number] - at) for number, at in self._next.items())
        return Offer(tuple(slices), waiting=left) if slices else None

    def _in_turn(self, waiting: Collection[int], most: int) -> list[int]:
        """The partitions to serve now; if there is no room for all of them, the others are served next time."""
        served = sorted(waiting, key=lambda number: (number <= self._last_served, number))[:most]
        self._last_served = served[-1] if len(served) < len(waiting) else -1
        return sorted(served)

    def _is_quiet(self) -> bool:
        """Whether all known offsets are offered and no consumer has received more. The broker is asked nevertheless, a
        bit later: consumers do not report offsets without messages, for instance."""
        is_due = time.monotonic() - self._last_lookup > _ASK_S
        if is_due or len(self._next) > _MOST_LISTENERS or self._unstored_starts:
            return False
        if any(self._ends[number] > at for number, at in self._next.items()):
            return False
        reader = self.reader()
        return not any(reader.has_news(number, at) for number, at in self._next.items())

    def _slice(self, number: int, rows: int, room: Room, among: int) -> Slice:
        first = self._next[number]
        end = min(self._ends[number], first + rows)
        key = self._key(number)
        parts_each = 1 if self._reading.readers else max(1, room.parts // among)
        cut = Room(rows, parts_each, room.part_rows).cut(first, end) if end > first else ()
        position = _position(end)
        schema = self._payload.schema_id
        parts = tuple(KafkaPart(number, start, stop, schema).to_json() for start, stop in cut)
        slice_ = Slice(self._reading.node, key, self._stored.get(key), position, parts, end - first)
        self._next[number] = end
        self._stored[key] = position
        self._unstored_starts.discard(number)
        return slice_

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        """Called if messages are longer than the ones before them."""
        if not slice_.parts:
            return slice_
        parts = [KafkaPart.from_json(part) for part in slice_.parts]
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
            self._store_start([number])
        return None

    def _log_quiet(self) -> None:
        """An idle topic is not an error, so this is only logged."""
        now = time.monotonic()
        if now - self._quiet_since >= self._reading.first_fetch:
            self._quiet_since = now
            text = "source %s: initial fetch timed out after %g s, trying again"
            log.debug(text, self._reading.name, self._reading.first_fetch)

    # Where reading starts

    def _start_partitions(self, broker: Broker) -> None:
        """Finds out where newly assigned partitions start."""
        new = [number for number in sorted(self._partitions) if number not in self._next]
        first, ends = broker.first(new), broker.end(new)
        starts = self._starts(broker, new, first, ends)
        offsets = {number: self._resume_offset(number, first, ends, starts[number]) for number in new}
        self._next.update(offsets)
        self._ends.update(ends)
        self._control.set_durable(offsets, commit=False)
        self._check_readers(len(self._next))
        self._store_start([number for number in new if self._key(number) not in self._stored])

    def _store_start(self, partitions: Collection[int]) -> None:
        """Stores the start with the next offer, unless it is `earliest`: the next owner must not start elsewhere."""
        if self._reading.start != "earliest":
            self._unstored_starts.update(partitions)

    def _check_readers(self, partitions: int) -> None:
        readers = self._reading.readers
        if readers and readers > partitions:
            text = "source %s: parallelism is %d, but only %d tasks can read: it has %d partitions of topic '%s'"
            log.warning(text, self._reading.name, readers, partitions, partitions, self._reading.topic)

    def _starts(
        self, broker: Broker, partitions: Collection[int], first: Mapping[int, int], ends: Mapping[int, int]
    ) -> Mapping[int, int]:
        # In a partition that is added while the source reads, no message may be skipped.
        added = {number: first[number] for number in partitions if self._control.is_new(number)}
        match self._reading.start:
            case "earliest":
                return first
            case "latest":
                return {**ends, **added}
        return {**broker.at(partitions, int(self._reading.start)), **added}

    def _resume_offset(self, number: int, first: Mapping[int, int], ends: Mapping[int, int], start: int) -> int:
        """The offset to start at: the stored one, if the broker still has it."""
        value = self._stored.get(self._key(number))
        if value is None:
            return start
        stored = value.get("offset") if isinstance(value, dict) else None
        if not isinstance(stored, int):
            raise PermanentError(
                SOURCE_FAILED,
                f"the stored position of {self._key(number)} is not an offset: {value}",
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
                hint="set on_missing_offsets to earliest or latest, or start over with `streamling state reset`",
            )
        begin = low if policy == "earliest" else high
        lost = f"; {begin - stored} messages are lost" if begin > stored else ""
        log.warning("source %s: %s; resuming at %d%s", self._reading.name, text, begin, lost)
        return begin

    def _check_ends(self, broker: Broker) -> None:
        """If a log ends before the offset that was read, the topic was recreated or has lost messages. Without a new
        start no row would ever arrive."""
        short = [number for number, at in self._next.items() if self._ends[number] < at]
        if not short:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = time.monotonic()
        elif time.monotonic() - self._short_since > _SHORT_S:
            first = broker.first(short)
            self._next.update(
                {number: self._resume_offset(number, first, self._ends, first[number]) for number in short}
            )

    # Replay of an epoch that an earlier run has recorded

    def recall(self, slices: Sequence[Slice]) -> tuple[Slice, ...]:
        """The slices without the offsets that the broker no longer has: those rows cannot be delivered any more."""
        broker = self._control.broker or Broker(self._connection, self._reading.topic, SOURCE_FAILED)
        parts_of = [[KafkaPart.from_json(part) for part in s.parts] for s in slices]
        numbers = {part.partition for parts in parts_of for part in parts}.intersection(broker.partitions())
        first, ends = broker.first(numbers), broker.end(numbers)
        return tuple(
            replace(s, parts=tuple(self._replay_part(part, first, ends).to_json() for part in parts))
            for s, parts in zip(slices, parts_of, strict=True)
        )

    def _replay_part(self, part: KafkaPart, first: Mapping[int, int], ends: Mapping[int, int]) -> KafkaPart:
        low, high = first.get(part.partition, 0), ends.get(part.partition, 0)
        begin = min(max(part.first, low), part.end)
        end = max(begin, min(part.end, high))
        if gone := part.end - part.first - (end - begin):
            log.warning(
                "source %s: an unfinished epoch is replayed, but partition %d of topic '%s' no longer has %d of its "
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
        return replace(part, first=begin, end=end, replayed=True)

    # The rest of the contract

    def extent(self) -> Extent | None:
        ends = dict(self._ends)
        done = dict(self._next)
        if not done:
            return None
        lag = sum(max(0, ends.get(number, at) - at) for number, at in done.items())
        read = sum(done.values())
        return Extent(read, read + lag, "rows")

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
            self._payload,
            self.columns,
            reading.metadata,
            reading.tombstones,
            self._row_key,
            skips_gone=reading.on_missing != "fail",
        )

    def decoder(self) -> KafkaDecoder:
        return KafkaDecoder(self.reader())

    def locator(self) -> KafkaLocator | None:
        """The columns of the payload may have the names of the metadata, if those are not included."""
        reader = self.reader()
        taken = not reader.metadata and any(name in reader.columns for name in METADATA_NAMES)
        return None if taken else KafkaLocator(reader)

    @property
    def _payload(self) -> AvroPayload | JsonPayload:
        if self._prepared_payload is None:
            raise AssertionError("the source is not prepared")
        return self._prepared_payload

    def committed(self, slices: Sequence[Slice]) -> None:
        """Commits the offsets to the consumer group, for tools that monitor it."""
        ends = {_partition(s.key): s.end["offset"] for s in slices if isinstance(s.end, dict)}
        self._control.set_durable({number: end for number, end in ends.items() if isinstance(end, int)})

    def close(self) -> None:
        CONSUMERS.close(self._reading.group)
        self._control.close()


def _position(offset: int) -> Json:
    return {"offset": offset, "updated_at": time.time_ns() // 1_000_000}


def _partition(key: str) -> int:
    return int(key.rpartition(":")[2])
