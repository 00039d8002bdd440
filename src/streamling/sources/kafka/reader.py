"""Reads parts of partitions, in the driver or in an executor.

The driver reads a small offer, with a consumer that stays open: it continues where the last part ended, and has already
fetched what comes next. A large offer is cut into as many parts as there are cores, even if it has only one partition;
each worker then opens a consumer that starts at the first offset of its part. Consumers stay open there too, but the
next part of a worker seldom begins where its last one ended.

Messages are taken from the client by the thousand and processed as lists (`rows.py`); their bodies are decoded together
(`formats/avro_messages.py`). Most of the cost of a row is in the client: fetching, parsing, creating objects.
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
from streamling.sources.kafka.part import KafkaPart
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.spec.settings.blocks import KafkaConnection

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sources.kafka.rows import MessageRows

log = logging.getLogger(__name__)

# Decoded at once: few enough to fit into the caches of a core, enough to keep the cost per message low.
_CHUNK_ROWS = 20_000
_CHUNK_BYTES = 16 << 20
# Requested first, while the length of messages is not known.
_FIRST_MESSAGES = 500
# The client waits this long for the requested number of messages; some offsets have no message.
_WAIT_S = 0.1
# A live broker sends messages, or reports the end of the log, within half a second.
_STALLED_S = 30.0
# What the client fetches ahead, per partition. Messages after the end of a part are fetched in vain if another process
# reads them, so this is small; it is still much more than one response of the broker.
_AHEAD_KB = 4 << 10
# How long the client pauses once it has fetched that much. By default it pauses a second, longer than reading it takes.
_PAUSE_MS = 10
# An idle consumer is closed after this time: another process reads its partition.
_IDLE_S = 60.0


@dataclass(slots=True)
class _IdleConsumer:
    """A consumer, its offset, and the messages and ends of the log after that offset that it has already delivered."""

    consumer: Any
    at: int
    messages: list[Any] = field(default_factory=list)
    since: float = 0.0


class Consumers:
    """Open consumers between two reads: the next part of a partition mostly begins where the last one ended.

    The key has the group, which differs for every source, because two sources may read one topic.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int], _IdleConsumer] = {}
        self._lock = threading.Lock()

    def take(self, group: str, partition: int, at: int) -> _IdleConsumer | None:
        with self._lock:
            for key in [k for k, v in self._idle.items() if time.monotonic() - v.since > _IDLE_S]:
                self._idle.pop(key).consumer.close()
            idle = self._idle.get((group, partition))
            if idle is None or idle.at != at:
                return None
            return self._idle.pop((group, partition))

    def put(self, group: str, partition: int, idle: _IdleConsumer) -> None:
        idle.since = time.monotonic()
        with self._lock:
            other = self._idle.get((group, partition))
            if other is not None and other.at >= idle.at:
                other, idle = idle, other
            self._idle[group, partition] = idle
        if other is not None:
            other.consumer.close()

    def has_news(self, group: str, partition: int, at: int) -> bool | None:
        """Whether the consumer at this offset has received something; None if there is none. Sends no request."""
        with self._lock:
            idle = self._idle.get((group, partition))
            if idle is None or idle.at != at:
                return None
            idle.since = time.monotonic()
            if not any(_is_news(message, at) for message in idle.messages):
                idle.messages += idle.consumer.consume(1, 0)
            return any(_is_news(message, at) for message in idle.messages)

    def close(self, group: str) -> None:
        with self._lock:
            closing = [self._idle.pop(key) for key in list(self._idle) if key[0] == group]
        for idle in closing:
            idle.consumer.close()


def _is_news(message: Any, at: int) -> bool:
    """Whether it shows that the log goes on after an offset. The end of the log at the offset itself is not news."""
    from confluent_kafka import KafkaError

    error = message.error()
    return error is None or error.code() != KafkaError._PARTITION_EOF or message.offset() > at


CONSUMERS = Consumers()
"""The idle consumers of this process."""


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """Reads parts. `skips_gone`: offsets that the broker no longer has are skipped with a warning, not an error."""

    node: str
    topic: str
    group: str
    connection: KafkaConnection
    payload: AvroPayload | JsonPayload
    columns: Schema
    metadata: bool
    tombstones: str
    key: tuple[str, ...]
    skips_gone: bool = False

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Reached]:
        kafka_part = KafkaPart.from_json(part)
        try:
            payload = self.payload
            if kafka_part.replayed:
                payload = payload.for_replay(kafka_part.schema, self.connection)
            message_rows = self.message_rows(payload)
            for messages, place in self._chunks(kafka_part):
                yield from message_rows.rows(messages)
                yield Reached(place)
        except StreamlingError as error:
            error.node = error.node or self.node
            raise

    def message_rows(self, payload: AvroPayload | JsonPayload) -> MessageRows:
        from streamling.sources.kafka.rows import MessageRows

        return MessageRows(self.topic, self.columns, payload, self.connection, self.metadata, self.tombstones, self.key)

    def _chunks(self, part: KafkaPart) -> Iterator[tuple[list[Any], int]]:
        """Messages, and the offset after them."""
        partition, first, end = part.partition, part.first, part.end
        if first >= end:
            return
        idle = CONSUMERS.take(self.group, partition, first) or self._open(partition, first)
        try:
            reading = _PartReading(self.topic, part, idle, skips_gone=self.skips_gone or part.replayed)
            while chunk := reading.chunk():
                yield chunk, reading.at
        except GeneratorExit:  # the caller stops here, and may continue from here later
            self._put_back(partition, idle, reading)
            raise
        except BaseException:
            idle.consumer.close()
            raise
        self._put_back(partition, idle, reading)

    def _put_back(self, partition: int, idle: _IdleConsumer, reading: _PartReading) -> None:
        idle.at = reading.at
        idle.messages = reading.beyond
        CONSUMERS.put(self.group, partition, idle)

    def has_news(self, partition: int, at: int) -> bool:
        """Whether something has arrived in a partition. The first call opens a consumer for the later ones."""
        news = CONSUMERS.has_news(self.group, partition, at)
        if news is None:
            CONSUMERS.put(self.group, partition, self._open(partition, at))
        return bool(news)

    def _open(self, partition: int, first: int) -> _IdleConsumer:
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "group.id": self.group,
            "enable.auto.commit": False,
            # The default would jump to the end of the log if offsets are gone, without an error.
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
        return _IdleConsumer(consumer, first)


class _PartReading:
    """Reads one part: until a message after its end arrives, or the broker reports that the log ends there.

    Aborted transactions and the marks of committed ones take up offsets without a message.
    """

    def __init__(self, topic: str, part: KafkaPart, idle: _IdleConsumer, *, skips_gone: bool) -> None:
        self._topic = topic
        self._partition = part.partition
        self._end = part.end
        self._skips_gone = skips_gone
        self._consumer = idle.consumer
        self._pending = idle.messages
        self.beyond: list[Any] = []
        """Messages after the end of the part."""
        self._next = part.first
        self._done = part.first >= part.end

    def chunk(self) -> list[Any]:
        """The next messages; none at the end."""
        chunk: list[Any] = []
        size, last_progress = 0, time.monotonic()
        while not self._done and len(chunk) < _CHUNK_ROWS and size < _CHUNK_BYTES:
            pending, self._pending = self._pending, []
            received = pending or self._consumer.consume(self._request_size(len(chunk), size), _WAIT_S)
            before = len(chunk), self._next
            messages = received if self._are_plain(received) else self._filter(received)
            if messages:
                chunk = chunk + messages if chunk else messages
                size += sum(map(len, messages))
                self._next = max(self._next, messages[-1].offset() + 1)
            self._done = self._done or self._next >= self._end
            if (len(chunk), self._next) != before:
                last_progress = time.monotonic()
            elif not self._done and time.monotonic() - last_progress > _STALLED_S:
                self._handle_stall()
        return chunk

    def _request_size(self, rows: int, size: int) -> int:
        """How many messages to request: enough to fill the chunk, by the length of the messages it has."""
        left = _CHUNK_ROWS - rows if rows else _FIRST_MESSAGES
        if size:
            left = min(left, int((_CHUNK_BYTES - size) * rows / size) + 1)
        return min(left, self._end - self._next)

    @property
    def at(self) -> int:
        """The offset after all messages so far, and after offsets without a message."""
        return self._end if self._done else self._next

    @property
    def _place(self) -> str:
        return f"partition {self._partition} of topic '{self._topic}'"

    def _are_plain(self, messages: list[Any]) -> bool:
        """Whether all are messages of the part, which is nearly always so."""
        if [message for message in messages if message.error() is not None]:
            return False
        return bool(messages) and messages[-1].offset() < self._end

    def _filter(self, messages: list[Any]) -> list[Any]:
        """The messages of the part, without errors and without messages after its end."""
        plain = []
        for message in messages:
            if message.error() is not None:
                self._handle_error(message)
            elif self._done or message.offset() >= self._end:
                self._done = True
                self.beyond.append(message)
            else:
                plain.append(message)
        return plain

    def _handle_error(self, message: Any) -> None:
        """Handles an event that the client delivers instead of a message."""
        from confluent_kafka import KafkaError

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._next = max(self._next, message.offset())
            if self._next > self._end:
                self.beyond.append(message)  # it is reported once, and applies to the next part too
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._skip_gone(*self._watermarks())
            return
        failure = kafka_failure(f"{self._place} cannot be read", error, SOURCE_FAILED)
        if isinstance(failure, PermanentError):
            raise failure
        log.warning("%s; the client retries", failure.message)

    def _handle_stall(self) -> None:
        low, high = self._watermarks()
        if not low <= self._next <= self._end <= high:
            self._skip_gone(low, high)
            return
        raise TransientError(
            SOURCE_FAILED,
            f"{self._place}: no messages for {_STALLED_S:g} s between the offsets {self._next} and {self._end}",
        )

    def _watermarks(self) -> tuple[int, int]:
        """The oldest offset that the broker has, and the offset after the newest."""
        from confluent_kafka import TopicPartition

        with client_errors(f"offsets of {self._place} cannot be looked up", SOURCE_FAILED):
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, self._partition), timeout=REQUEST_SECONDS
            )
            return int(low), int(high)

    def _skip_gone(self, low: int, high: int) -> None:
        """Continues with the offsets that are left, if that is allowed."""
        from confluent_kafka import TopicPartition

        text = f"{self._place} no longer has all offsets from {self._next} to {self._end}: it has {low} up to {high}"
        if not self._skips_gone:
            hint = "restart; on_missing_offsets of the source decides where to resume"
            raise PermanentError(OFFSETS_GONE, text, hint=hint)
        begin = min(max(self._next, low), self._end)
        if begin >= high:
            begin = self._end
        log.warning("%s; %d offsets are skipped", text, begin - self._next)
        self._next = begin
        self._consumer.assign([TopicPartition(self._topic, self._partition, begin)])
