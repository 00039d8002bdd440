"""The control side of a Kafka source: the partitions of this process, their ends, the next offer."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from streamling.clients.kafka import Broker, LogEnd
from streamling.connector import (
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
from streamling.errors import SOURCE_FAILED, PermanentError, TransientError
from streamling.plan.sql import Expression
from streamling.plan.sql.values import identifier
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sources.kafka.control import Control, ControlOptions
from streamling.sources.kafka.decoder import KafkaDecoder
from streamling.sources.kafka.feed import FEEDS, Feeds
from streamling.sources.kafka.locator import METADATA_NAMES, KafkaLocator
from streamling.sources.kafka.part import KafkaPart
from streamling.sources.kafka.payload import Payload
from streamling.sources.kafka.position import Position, is_newer
from streamling.sources.kafka.reader import DECODE_LATENCY, KafkaReader, topic_replaced
from streamling.sources.kafka.recorded_parts import replay_part
from streamling.sources.kafka.starts import Starts
from streamling.sources.kafka.topic_identity import TopicIdentity
from streamling.sources.kafka.topic_reading import TopicReading
from streamling.spec.settings.blocks import KafkaSourceSettings
from streamling.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# How often the broker is asked for the ends of partitions although the consumer receives nothing.
_ASK_S = 1.0
# A broker that has just become leader of a partition may report an older end, for a moment.
_SHORT_S = 10.0


class KafkaSource(Source):
    """Offers the offsets of its partitions between the last offer and the end of the log."""

    def __init__(
        self,
        reading: TopicReading,
        control: ControlOptions,
        connection: KafkaSourceSettings,
        make_payload: Callable[[Schema], tuple[Payload, tuple[str, ...]]],
        make_condition: Callable[[Schema], Expression | None],
    ) -> None:
        self._reading = reading
        self._connection = connection
        self.capabilities = SourceCapabilities(
            shared=True, takes_back=True, max_readers=reading.readers, batch=reading.batch
        )
        self._make_payload = make_payload
        self._make_condition = make_condition
        self._prepared_payload: Payload | None = None
        self._row_key: tuple[str, ...] = ()
        self._control = Control(control, connection)
        self._feeds = Feeds(connection, reading.group, reading.topic)
        self._source_id = uuid.uuid4().hex
        self._starts = Starts(reading)
        self._metrics = Metrics()
        self._measures = False
        self._labels = control.labels
        self._partitions: frozenset[int] = frozenset()
        self._has_offered_rows = False
        self._topic_id: str | None = None
        """The id of the topic that is read, if the broker reports one."""
        self._ends: dict[int, LogEnd] = {}
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

    def start_at(self, offsets: Mapping[int, int]) -> None:
        """Partitions without a stored position start at these offsets. Called before `open`."""
        self._starts.offsets = dict(offsets)

    def record_start(self) -> bool:
        """Record where partitions without an offset will start; False if the broker has not been found yet."""
        broker = self._control.broker
        if self._reading.start == "earliest":
            return True
        if broker is not None:
            self._starts.record(broker)
        return broker is not None

    def attach(self, runtime: Runtime) -> None:
        self._metrics = runtime.metrics
        self._measures = runtime.metrics.allows(DECODE_LATENCY)
        self._starts.state = runtime.state
        self._control.application = runtime.application
        self._control.generation = runtime.generation

    # Which partitions

    def join(self, changed: Callable[[], None]) -> None:
        FEEDS[self._source_id] = self._feeds
        self._control.start(changed, self._metrics)

    def assigned(self) -> frozenset[str]:
        return frozenset(self._key(number) for number in self._control.assigned())

    def own(self, keys: frozenset[str]) -> None:
        self._partitions = frozenset(_partition(key) for key in keys)
        self._control.own(self._partitions)
        self._feeds.keep_only(self._partitions)

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
        self._control.note_request()
        offer = self._next_offer(room)
        self._control.note_answer(dict(self._next), has_rows=offer is not None and offer.rows > 0)
        return offer

    def _next_offer(self, room: Room) -> Offer | None:
        broker = self._control.broker
        if not self._partitions or broker is None:
            return None
        if len(self._next) < len(self._partitions):
            self._start_partitions(broker)
        if self._is_quiet():
            return None
        self._last_lookup = time.monotonic()
        self._look_at_ends(broker)
        rows = room.rows
        waiting = [n for n, at in self._next.items() if self._ends[n].offset > at or n in self._unstored_starts]
        served = self._in_turn(waiting, rows)
        self._feeds.expect({number: self._next[number] for number in served})
        slices = []
        for place, number in enumerate(served):
            # What a short partition does not use is left for the others.
            share = max(1, rows // (len(served) - place))
            slices.append(self._slice(number, share, room, len(served)))
            rows = max(0, rows - slices[-1].rows)
        if any(s.rows for s in slices):
            self._has_offered_rows = True
        elif not self._has_offered_rows:
            self._log_quiet()
        left = sum(max(0, self._ends[number].offset - at) for number, at in self._next.items())
        return Offer(tuple(slices), waiting=left) if slices else None

    def _in_turn(self, waiting: Collection[int], most: int) -> list[int]:
        """The partitions to serve now; if there is no room for all of them, the others are served next time."""
        served = sorted(waiting, key=lambda number: (number <= self._last_served, number))[:most]
        self._last_served = served[-1] if len(served) < len(waiting) else -1
        return sorted(served)

    def _is_quiet(self) -> bool:
        """Whether all known offsets are offered and the consumer has received no more. The broker is asked
        nevertheless, a bit later: the consumer does not report offsets without messages, for instance."""
        if time.monotonic() - self._last_lookup > _ASK_S or self._unstored_starts:
            return False
        if any(self._ends[number].offset > at for number, at in self._next.items()):
            return False
        return not self._feeds.has_news(self._next)

    def _slice(self, number: int, rows: int, room: Room, among: int) -> Slice:
        first = self._next[number]
        end = min(self._ends[number].offset, first + rows)
        key = self._key(number)
        parts_each = 1 if self._reading.readers else max(1, room.parts // among)
        cut = Room(rows, parts_each, room.part_rows).cut(first, end) if end > first else ()
        epoch = self._ends[number].leader_epoch
        position = Position(end, self._topic_id, epoch).to_json()
        part = KafkaPart(number, first, end, self._payload.schema_id, topic_id=self._topic_id, leader_epoch=epoch)
        parts = tuple(replace(part, first=start, end=stop).to_json() for start, stop in cut)
        slice_ = Slice(self._reading.node, key, self._stored.get(key), position, parts, end - first)
        self._next[number] = end
        self._stored[key] = position
        self._unstored_starts.discard(number)
        return slice_

    def check_read(self, slices: Sequence[Slice]) -> None:
        identity = TopicIdentity(self._connection, self._reading.topic)
        for topic_id in {KafkaPart.from_json(part).topic_id for s in slices for part in s.parts}:
            was_known = identity.is_known_replaced(topic_id)  # then the reader has read nothing
            if identity.is_replaced(topic_id):
                self._control.refresh_topic_id()
                if not was_known:
                    raise topic_replaced(self._reading.topic)

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
            position = Position(at, parts[0].topic_id, parts[0].leader_epoch).to_json()
            self._stored[slice_.key] = position
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
        """Finds out where newly assigned partitions start. Those that cannot be looked up now follow later."""
        if not self._next:
            self._topic_id = self._control.topic_id
        asked = [number for number in sorted(self._partitions) if number not in self._next]
        ends = broker.ends(asked)
        first = broker.first(ends)
        new = [number for number in asked if number in first]
        positions = {number: position for number in new if (position := self._stored_position(number)) is not None}
        unstored = [number for number in new if number not in positions]
        starts = self._starts.unstored(broker, unstored, first, has_positions=bool(self._stored))
        offsets = self._resume(positions | starts, first, ends)
        self._next.update(offsets)
        self._ends.update(ends)
        self._control.set_durable(offsets, commit=False)
        self._check_readers(len(self._next))
        self._store_start(unstored)

    def _store_start(self, partitions: Collection[int]) -> None:
        """Stores the start with the next offer, unless it is `earliest`: the next owner must not start elsewhere."""
        if self._reading.start != "earliest":
            self._unstored_starts.update(partitions)
        self._unstored_starts.update(self._starts.offsets.keys() & set(partitions))

    def _check_readers(self, partitions: int) -> None:
        readers = self._reading.readers
        if readers and readers > partitions:
            text = "source %s: parallelism is %d, but only %d tasks can read: it has %d partitions of topic '%s'"
            log.warning(text, self._reading.name, readers, partitions, partitions, self._reading.topic)

    def _stored_position(self, number: int) -> Position | None:
        value = self._stored.get(self._key(number))
        if value is None:
            return None
        try:
            return Position.from_json(value)
        except ValueError as error:
            text = f"the stored position of {self._key(number)} is {error}"
            raise PermanentError(SOURCE_FAILED, text, node=self._reading.name) from error

    def _resume(
        self, positions: Mapping[int, Position], first: Mapping[int, int], ends: Mapping[int, LogEnd]
    ) -> dict[int, int]:
        """The offsets at which partitions continue that were read up to these positions."""
        # A new leader may have fewer messages than the one that reported the position.
        suspects = {n: p for n, p in positions.items() if is_newer(ends[n].leader_epoch, p.leader_epoch)}
        truncated = self._feeds.find_truncated(suspects) if suspects else frozenset()
        return {
            number: self._starts.resume(
                number, position, first[number], ends[number], self._topic_id, truncated=number in truncated
            )
            for number, position in positions.items()
        }

    def _look_at_ends(self, broker: Broker) -> None:
        """Looks up the ends of the partitions, and continues elsewhere where a log is no longer the one that was read.
        Partitions that cannot be looked up now keep their ends."""
        before, ends = self._ends, broker.ends(self._next)
        self._ends = {**before, **ends}
        changed = {number for number in ends if is_newer(ends[number].leader_epoch, before[number].leader_epoch)}
        if self._control.topic_id not in (None, self._topic_id):
            self._topic_id = self._control.topic_id
            self._feeds.reset()
            changed.update(ends)
        changed.update(self._short(ends))
        if not changed:
            return
        first = broker.first(changed)
        positions = {
            number: Position(self._next[number], self._topic_read(number), before[number].leader_epoch)
            for number in changed & first.keys()
        }
        self._next.update(self._resume(positions, first, ends))

    def _topic_read(self, number: int) -> str | None:
        position = self._stored_position(number)
        return position.topic_id if position is not None else None

    def _short(self, ends: Mapping[int, LogEnd]) -> list[int]:
        """Partitions whose log ends before the offset that was read, and not only for a moment: without a new start no
        row would ever arrive."""
        short = [number for number, end in ends.items() if end.offset < self._next[number]]
        if not short:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = time.monotonic()
        elif time.monotonic() - self._short_since > _SHORT_S:
            return short
        return []

    # Replay of an epoch that an earlier run has recorded

    def recall(self, slices: Sequence[Slice]) -> tuple[Slice, ...]:
        """The slices without the offsets that the broker no longer has: those rows cannot be delivered any more."""
        broker = self._control.broker or Broker(self._connection, self._reading.topic, SOURCE_FAILED)
        parts_of = [[KafkaPart.from_json(part) for part in s.parts] for s in slices]
        topic_id = broker.topic_id()
        numbers = {part.partition for parts in parts_of for part in parts}.intersection(broker.partitions())
        first, ends = broker.first(numbers), broker.ends(numbers)
        if missing := numbers - (first.keys() & ends.keys()):
            text = f"partition {min(missing)} of topic '{self._reading.topic}' does not report its offsets"
            raise TransientError(SOURCE_FAILED, text, node=self._reading.name)
        return tuple(
            replace(s, parts=tuple(replay_part(self._reading, part, first, ends, topic_id).to_json() for part in parts))
            for s, parts in zip(slices, parts_of, strict=True)
        )

    # The rest of the contract

    def extent(self) -> Extent | None:
        ends = dict(self._ends)
        done = dict(self._next)
        if not done:
            return None
        lag = sum(max(0, ends[number].offset - at) for number, at in done.items() if number in ends)
        read = sum(done.values())
        return Extent(read, read + lag, "rows")

    def count(self, counts: Mapping[str, int]) -> None:
        for what, count in counts.items():
            name, _, kind = what.partition(":")
            labels = {**self._labels, "kind": kind} if kind else self._labels
            self._metrics.count(f"kafka_consumer.{name}", count, labels)

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
            source_id=self._source_id,
            measures=self._measures,
        )

    def decoder(self) -> KafkaDecoder:
        return KafkaDecoder(self.reader())

    def locator(self) -> KafkaLocator | None:
        """The columns of the payload may have the names of the metadata, if those are not included."""
        reader = replace(self.reader(), source_id="")  # with a consumer of its own: the feeds are at other offsets
        taken = not reader.metadata and any(name in reader.columns for name in METADATA_NAMES)
        return None if taken else KafkaLocator(reader)

    @property
    def _payload(self) -> Payload:
        if self._prepared_payload is None:
            raise AssertionError("the source is not prepared")
        return self._prepared_payload

    def committed(self, slices: Sequence[Slice]) -> None:
        """Commits the offsets to the consumer group, for tools that monitor it."""
        ends = {_partition(s.key): s.end["offset"] for s in slices if isinstance(s.end, dict)}
        self._control.set_durable({number: end for number, end in ends.items() if isinstance(end, int)})

    def close(self) -> None:
        FEEDS.pop(self._source_id, None)
        self._feeds.reset()
        self._control.close()


def _partition(key: str) -> int:
    return int(key.rpartition(":")[2])
