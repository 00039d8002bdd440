"""Reads stretches of partitions, in the driver or in an executor.

A small offer is read in the driver, by a consumer that is kept: it goes on where the last stretch ended, and has
fetched what comes next in the meantime. A large one is cut into as many parts as there are cores, also if it is of a
single partition; each worker then has a consumer of its own that starts at the first offset of its part. Consumers are
kept there too, but the next part of a worker seldom begins where its last one ended.

Messages are taken from the client by the thousand and looked at by list (`rows.py`), their bodies decoded in one go
(`formats/avro_messages.py`). Most of what a row costs is the client's own work: fetching, parsing, making objects.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamling.clients.kafka import (
    REQUEST_SECONDS,
    access_denied_callback,
    client_errors,
    client_settings,
    kafka_failure,
)
from streamling.connector import BadRow, Counted, Json, Reached
from streamling.errors import OFFSETS_GONE, SOURCE_FAILED, PermanentError, StreamlingError, TransientError
from streamling.plan.types import Schema
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.sources.kafka.stretch import Stretch
from streamling.spec.settings.blocks import KafkaConnection

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# Decoded at once: few enough for the caches of a core, enough to cost little each.
_CHUNK_ROWS = 20_000
_CHUNK_BYTES = 16 << 20
# Asked for at first, while it is not known how long messages are.
_FIRST_MESSAGES = 500
# The client waits that long for as many messages as asked for. Where offsets have no message it has to give up.
_WAIT_S = 0.1
# A broker that is alive sends something, or says that nothing is left, within its own half second.
_STALLED_S = 30.0
# What the client fetches ahead, per partition. What lies behind the end of a stretch is fetched in vain if another
# process reads it, so it is little; it is much more than one answer of the broker.
_AHEAD_KB = 4 << 10
# How long the client pauses once it has fetched that much. Its own second is longer than it takes to read all of it.
_PAUSE_MS = 10
# A kept consumer that nobody asked for any longer: its partition is read by another process.
_IDLE_S = 60.0


@dataclass(slots=True)
class _Kept:
    """A consumer, where it stands, and what it has given already of what comes next: messages, ends of the log."""

    consumer: Any
    at: int
    messages: list[Any] = field(default_factory=list)
    since: float = 0.0


class Consumers:
    """Consumers between two reads: the next stretch of a partition mostly begins where the last one ended.

    Kept by group, which every source has its own of: two sources may read one topic.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._lock = threading.Lock()

    def take(self, group: str, partition: int, at: int) -> _Kept | None:
        with self._lock:
            for key in [k for k, v in self._kept.items() if time.monotonic() - v.since > _IDLE_S]:
                self._kept.pop(key).consumer.close()
            found = self._kept.get((group, partition))
            if found is None or found.at != at:
                return None
            return self._kept.pop((group, partition))

    def put(self, group: str, partition: int, kept: _Kept) -> None:
        kept.since = time.monotonic()
        with self._lock:
            other = self._kept.get((group, partition))
            if other is not None and other.at >= kept.at:
                other, kept = kept, other
            self._kept[group, partition] = kept
        if other is not None:
            other.consumer.close()

    def heard(self, group: str, partition: int, at: int) -> bool | None:
        """Whether the consumer that stands there has got something; None if there is none. Asks nobody else."""
        with self._lock:
            kept = self._kept.get((group, partition))
            if kept is None or kept.at != at:
                return None
            kept.since = time.monotonic()
            if not any(_beyond(message, at) for message in kept.messages):
                kept.messages += kept.consumer.consume(1, 0)
            return any(_beyond(message, at) for message in kept.messages)

    def close(self, group: str) -> None:
        with self._lock:
            gone = [self._kept.pop(key) for key in list(self._kept) if key[0] == group]
        for kept in gone:
            kept.consumer.close()


def _beyond(message: Any, at: int) -> bool:
    """Whether it tells of something behind an offset. That the log ends there is told too, once, and kept."""
    from confluent_kafka import KafkaError

    error = message.error()
    return error is None or error.code() != KafkaError._PARTITION_EOF or message.offset() > at


CONSUMERS = Consumers()
"""Those of this process."""


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """Parts are stretches. `patient`: what is gone of one is passed over, with a warning, instead of an error."""

    node: str
    topic: str
    group: str
    connection: KafkaConnection
    payload: AvroPayload | JsonPayload
    columns: Schema
    metadata: bool
    tombstones: str
    key: tuple[str, ...]
    patient: bool = False

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Reached]:
        from streamling.sources.kafka.rows import MessageRows

        stretch = Stretch.of(part)
        try:
            payload = self.payload
            if stretch.recalled:
                payload = payload.recalled(stretch.schema, self.connection)
            shape = MessageRows(
                self.topic, self.columns, payload, self.connection, self.metadata, self.tombstones, self.key
            )
            for messages, place in self._chunks(stretch):
                yield from shape.rows(messages)
                yield Reached(place)
        except StreamlingError as error:
            error.node = error.node or self.node
            raise

    def _chunks(self, stretch: Stretch) -> Iterator[tuple[list[Any], int]]:
        """Messages, and the offset behind them."""
        partition, first, end = stretch.partition, stretch.first, stretch.end
        if first >= end:
            return
        kept = CONSUMERS.take(self.group, partition, first) or self._opened(partition, first)
        try:
            reading = _Reading(self.topic, partition, kept, first, end, patient=self.patient or stretch.recalled)
            while chunk := reading.chunk():
                yield chunk, reading.at
        except GeneratorExit:  # not asked any further; it may be, from here on
            self._keep(partition, kept, reading)
            raise
        except BaseException:
            kept.consumer.close()
            raise
        self._keep(partition, kept, reading)

    def _keep(self, partition: int, kept: _Kept, reading: _Reading) -> None:
        kept.at, kept.messages = reading.at, reading.beyond
        CONSUMERS.put(self.group, partition, kept)

    def heard(self, partition: int, at: int) -> bool:
        """Whether something has come to a partition; from the first time on somebody listens to it."""
        found = CONSUMERS.heard(self.group, partition, at)
        if found is None:
            CONSUMERS.put(self.group, partition, self._opened(partition, at))
        return bool(found)

    def _opened(self, partition: int, first: int) -> _Kept:
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "group.id": self.group,
            "enable.auto.commit": False,
            # The default would jump to the end where a stretch is gone, and nobody would know.
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": _AHEAD_KB,
            "fetch.queue.backoff.ms": _PAUSE_MS,
        }
        what = f"partition {partition} of topic '{self.topic}' cannot be read at {self.connection.brokers}"
        with client_errors(what, SOURCE_FAILED):
            consumer = Consumer(
                {
                    **client_settings(self.connection),
                    **settings,
                    "error_cb": access_denied_callback(what, SOURCE_FAILED),
                }
            )
        consumer.assign([TopicPartition(self.topic, partition, first)])
        return _Kept(consumer, first)


class _Reading:
    """One stretch: ends with a message behind it, or when the broker says that nothing is left before its end.

    Aborted transactions and the marks of committed ones take up offsets without a message.
    """

    def __init__(self, topic: str, partition: int, kept: _Kept, first: int, end: int, *, patient: bool) -> None:
        self._topic, self._partition, self._end, self._patient = topic, partition, end, patient
        self._consumer = kept.consumer
        self._pending, self.beyond = kept.messages, list[Any]()
        self._next, self._done = first, first >= end

    def chunk(self) -> list[Any]:
        """The next messages; none at the end."""
        found: list[Any] = []
        size, moved = 0, time.monotonic()
        while not self._done and len(found) < _CHUNK_ROWS and size < _CHUNK_BYTES:
            pending, self._pending = self._pending, []
            messages = pending or self._consumer.consume(self._wanted(len(found), size), _WAIT_S)
            before = len(found), self._next
            taken = messages if self._plain(messages) else self._sorted(messages)
            if taken:
                found = found + taken if found else taken
                size += sum(map(len, taken))
                self._next = max(self._next, taken[-1].offset() + 1)
            self._done = self._done or self._next >= self._end
            if (len(found), self._next) != before:
                moved = time.monotonic()
            elif not self._done and time.monotonic() - moved > _STALLED_S:
                self._stalled()
        return found

    def _wanted(self, rows: int, size: int) -> int:
        """How many messages to ask for: those that fill the chunk, by the length of the ones it has."""
        left = _CHUNK_ROWS - rows if rows else _FIRST_MESSAGES
        if size:
            left = min(left, int((_CHUNK_BYTES - size) * rows / size) + 1)
        return min(left, self._end - self._next)

    @property
    def at(self) -> int:
        """The offset behind all that was given, and behind those that have no message."""
        return self._end if self._done else self._next

    @property
    def _place(self) -> str:
        return f"partition {self._partition} of topic '{self._topic}'"

    def _plain(self, messages: list[Any]) -> bool:
        """Whether all are messages of the stretch, as nearly always."""
        if [message for message in messages if message.error() is not None]:
            return False
        return bool(messages) and messages[-1].offset() < self._end

    def _sorted(self, messages: list[Any]) -> list[Any]:
        """The messages of the stretch, apart from errors and from messages behind its end."""
        taken = []
        for message in messages:
            if message.error() is not None:
                self._heard(message)
            elif self._done or message.offset() >= self._end:
                self._done = True
                self.beyond.append(message)
            else:
                taken.append(message)
        return taken

    def _heard(self, message: Any) -> None:
        """What the client says instead of a message."""
        from confluent_kafka import KafkaError

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._next = max(self._next, message.offset())
            if self._next > self._end:
                self.beyond.append(message)  # it is said once, and true of the next stretch too
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._pass_over(*self._left())
            return
        found = kafka_failure(f"{self._place} cannot be read", error, SOURCE_FAILED)
        if isinstance(found, PermanentError):
            raise found
        log.warning("%s; the client goes on trying", found.message)

    def _stalled(self) -> None:
        low, high = self._left()
        if not low <= self._next <= self._end <= high:
            self._pass_over(low, high)
            return
        raise TransientError(
            SOURCE_FAILED,
            f"{self._place} gave nothing for {_STALLED_S:g} s between the offsets {self._next} and {self._end}",
        )

    def _left(self) -> tuple[int, int]:
        """The oldest offset that the broker has, and the one behind the newest."""
        from confluent_kafka import TopicPartition

        with client_errors(f"offsets of {self._place} cannot be looked up", SOURCE_FAILED):
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, self._partition), timeout=REQUEST_SECONDS
            )
            return int(low), int(high)

    def _pass_over(self, low: int, high: int) -> None:
        """Go on with what is left, if that is allowed."""
        from confluent_kafka import TopicPartition

        text = f"{self._place} no longer has all offsets from {self._next} to {self._end}: it has {low} up to {high}"
        if not self._patient:
            hint = "start again; on_missing_offsets of the source says where to go on"
            raise PermanentError(OFFSETS_GONE, text, hint=hint)
        begin = min(max(self._next, low), self._end)
        if begin >= high:
            begin = self._end
        log.warning("%s; %d of them are passed over", text, begin - self._next)
        self._next = begin
        self._consumer.assign([TopicPartition(self._topic, self._partition, begin)])
