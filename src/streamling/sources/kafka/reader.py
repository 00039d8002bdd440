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

from streamling.errors import OFFSETS_GONE, SOURCE_FAILED, PermanentError, StreamlingError, TransientError
from streamling.plan.types import Schema
from streamling.plugin import BadRow, Json
from streamling.sources.kafka.client import client_settings, failed
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.spec.blocks import KafkaConnection

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# Decoded at once: few enough for the caches of a core, enough to cost little each.
_CHUNK_ROWS = 20_000
_CHUNK_BYTES = 16 << 20
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
    """A consumer, where it stands, and messages it has given already."""

    consumer: Any
    at: int
    messages: list[Any] = field(default_factory=list)
    since: float = 0.0


class Consumers:
    """Consumers between two reads: the next stretch of a partition mostly begins where the last one ended."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int], _Kept] = {}
        self._lock = threading.Lock()
        self.row_bytes: dict[str, float] = {}
        """How long payloads of a topic were lately, on the average."""

    def take(self, brokers: str, topic: str, partition: int, at: int) -> _Kept | None:
        with self._lock:
            for key in [k for k, v in self._kept.items() if time.monotonic() - v.since > _IDLE_S]:
                self._kept.pop(key).consumer.close()
            found = self._kept.get((brokers, topic, partition))
            if found is None or found.at != at:
                return None
            return self._kept.pop((brokers, topic, partition))

    def put(self, brokers: str, topic: str, partition: int, kept: _Kept) -> None:
        kept.since = time.monotonic()
        with self._lock:
            other = self._kept.get((brokers, topic, partition))
            if other is not None and other.at >= kept.at:
                other, kept = kept, other
            self._kept[brokers, topic, partition] = kept
        if other is not None:
            other.consumer.close()

    def close(self, brokers: str, topic: str) -> None:
        with self._lock:
            gone = [self._kept.pop(key) for key in list(self._kept) if key[:2] == (brokers, topic)]
        for kept in gone:
            kept.consumer.close()


CONSUMERS = Consumers()
"""Those of this process."""


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """A part is a partition, the first offset and the one behind the last."""

    node: str
    topic: str
    group: str
    connection: KafkaConnection
    payload: AvroPayload | JsonPayload
    columns: Schema
    metadata: bool
    tombstones: str
    key: tuple[str, ...]

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow]:
        from streamling.sources.kafka.rows import MessageRows

        partition, first, end = bounds(part)
        shape = MessageRows(
            self.topic, self.columns, self.payload, self.connection, self.metadata, self.tombstones, self.key
        )
        try:
            for messages in self._chunks(partition, first, end):
                yield from shape.rows(messages)
        except StreamlingError as error:
            error.node = error.node or self.node
            raise

    def _chunks(self, partition: int, first: int, end: int) -> Iterator[list[Any]]:
        brokers = self.connection.brokers
        kept = CONSUMERS.take(brokers, self.topic, partition, first) or self._opened(partition, first)
        try:
            reading = _Reading(self.topic, partition, kept, first, end)
            while chunk := reading.chunk():
                yield chunk
        except BaseException:  # also a reader that is not asked any further
            kept.consumer.close()
            raise
        kept.at, kept.messages = end, reading.beyond
        CONSUMERS.put(brokers, self.topic, partition, kept)

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
        consumer = Consumer({**client_settings(self.connection), **settings})
        consumer.assign([TopicPartition(self.topic, partition, first)])
        return _Kept(consumer, first)


class _Reading:
    """One stretch: ends with a message behind it, or when the broker says that nothing is left before its end.

    Aborted transactions and the marks of committed ones take up offsets without a message.
    """

    def __init__(self, topic: str, partition: int, kept: _Kept, first: int, end: int) -> None:
        self._topic, self._partition, self._end = topic, partition, end
        self._consumer = kept.consumer
        self._pending, self.beyond = kept.messages, list[Any]()
        self._next, self._done = first, first >= end

    def chunk(self) -> list[Any]:
        """The next messages; none at the end."""
        found: list[Any] = []
        size, moved = 0, time.monotonic()
        while not self._done and len(found) < _CHUNK_ROWS and size < _CHUNK_BYTES:
            pending, self._pending = self._pending, []
            messages = pending or self._consumer.consume(min(_CHUNK_ROWS - len(found), self._end - self._next), _WAIT_S)
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
                raise TransientError(
                    SOURCE_FAILED,
                    f"partition {self._partition} of topic '{self._topic}' gave nothing for {_STALLED_S:g} s between "
                    f"the offsets {self._next} and {self._end}",
                )
        if found:
            CONSUMERS.row_bytes[self._topic] = size / len(found)
        return found

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
            return
        place = f"partition {self._partition} of topic '{self._topic}'"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise PermanentError(
                OFFSETS_GONE,
                f"{place} no longer has the offset {self._next}: {error.str()}",
                hint="start again; on_missing_offsets of the source says where to go on",
            )
        found = failed(f"{place} cannot be read", error)
        if isinstance(found, PermanentError):
            raise found
        log.warning("%s; the client goes on trying", found.message)


def bounds(part: Json) -> tuple[int, int, int]:
    if isinstance(part, list) and len(part) == 3:
        partition, first, end = part
        if isinstance(partition, int) and isinstance(first, int) and isinstance(end, int):
            return partition, first, end
    raise ValueError(f"not a stretch of a partition: {part!r}")
