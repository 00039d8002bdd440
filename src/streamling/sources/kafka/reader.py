"""Reads parts of partitions, in the driver or in an executor.

The driver reads a small offer, with a consumer that stays open (`feed.py`): it continues where the last part ended, and
has already fetched what comes next. A large offer is cut into as many parts as there are cores, even if it has only one
partition; each worker then opens a consumer that starts at the first offset of its part. A few stay open there too
(`consumers.py`), but the next part of a worker seldom begins where its last one ended.

Messages are taken from the client by the thousand and processed as lists (`rows.py`); their bodies are decoded together
(`formats/avro_messages.py`). Most of the cost of a row is in the client: fetching, parsing, creating objects.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamling.clients.kafka import kafka_failure
from streamling.connector import BadRow, Counted, Json, Reached, Timed
from streamling.errors import OFFSETS_GONE, SOURCE_FAILED, PermanentError, StreamlingError, TransientError
from streamling.plan.types import Schema
from streamling.sources.kafka.consumers import POOL, Cursor, OwnConsumer, open_consumer
from streamling.sources.kafka.feed import FEEDS
from streamling.sources.kafka.part import KafkaPart
from streamling.sources.kafka.payload import Payload
from streamling.sources.kafka.row_kinds import with_kinds
from streamling.sources.kafka.topic_identity import TopicIdentity
from streamling.spec.settings.blocks import KafkaConnection
from streamling.telemetry.stopwatch import Stopwatch

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sources.kafka.rows import MessageRows

log = logging.getLogger(__name__)

DECODE_LATENCY = "kafka_consumer.msg_decode_latency"
# Decoded at once: few enough to fit into the caches of a core, enough to keep the cost per message low.
_CHUNK_ROWS = 20_000
_CHUNK_BYTES = 16 << 20
# Requested first, while the length of messages is not known.
_FIRST_MESSAGES = 500
# The client waits this long for the requested number of messages; some offsets have no message.
_WAIT_S = 0.1
# A live broker sends messages, or reports the end of the log, within half a second.
_STALLED_S = 30.0
# After so long without messages it is looked up whether the topic was deleted.
_SUSPICIOUS_S = 2.0


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """Reads parts. `skips_gone`: offsets that the broker no longer has are skipped with a warning, not an error."""

    node: str
    topic: str
    group: str
    connection: KafkaConnection
    payload: Payload
    columns: Schema
    metadata: bool
    tombstones: str
    key: tuple[str, ...]
    skips_gone: bool = False
    source_id: str = ""
    """Whose feeds have the messages, in the driver."""
    measures: bool = False
    """Whether the time to decode a batch of messages is measured."""

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Timed | Reached]:
        try:
            for _, rows, place in self.decoded(part):
                if self.measures:
                    stopwatch = Stopwatch()
                    yield from with_kinds(stopwatch.output(rows))
                    yield Timed(DECODE_LATENCY, stopwatch.milliseconds)
                else:
                    yield from with_kinds(rows)
                yield Reached(place)
        except StreamlingError as error:
            error.node = error.node or self.node
            raise

    def decoded(self, part: Json) -> Iterator[tuple[list[Any], Iterator[pa.RecordBatch | BadRow | Counted], int]]:
        """Messages, what becomes of them, and the offset after them."""
        kafka_part = KafkaPart.from_json(part)
        payload = self.payload
        if kafka_part.replayed:
            payload = payload.for_replay(kafka_part.schema, self.connection)
        message_rows = self.message_rows(payload)
        for messages, place in self._chunks(kafka_part):
            yield messages, message_rows.rows(messages), place

    def message_rows(self, payload: Payload) -> MessageRows:
        from streamling.sources.kafka.rows import MessageRows

        return MessageRows(self.topic, self.columns, payload, self.connection, self.metadata, self.tombstones, self.key)

    def _chunks(self, part: KafkaPart) -> Iterator[tuple[list[Any], int]]:
        """Messages, and the offset after them."""
        partition, first, end = part.partition, part.first, part.end
        identity = TopicIdentity(self.connection, self.topic)
        if first >= end:
            return
        if identity.is_known_replaced(part.topic_id):
            text = "source %s: partition %d of topic '%s' no longer has the offsets %d to %d: %s"
            log.warning(text, self.node, partition, self.topic, first, end, "the topic was deleted and created again")
            return
        cursor = self._cursor(partition, first)
        try:
            reading = _PartReading(self.topic, part, cursor, identity, skips_gone=self.skips_gone or part.replayed)
            while chunk := reading.chunk():
                yield chunk, reading.at
            if self.source_id not in FEEDS and identity.is_replaced(part.topic_id):  # the driver asks once for all
                raise topic_replaced(self.topic)
        except GeneratorExit:  # the caller stops here, and may continue from here later
            cursor.keep(reading.at, reading.beyond)
            raise
        except BaseException:
            cursor.drop()
            raise
        cursor.keep(reading.at, reading.beyond)

    def _cursor(self, partition: int, first: int) -> Cursor:
        if feeds := FEEDS.get(self.source_id):
            return feeds.cursor(partition, first)
        if idle := POOL.take(self.group, self.topic, partition, first):
            return idle
        consumer = open_consumer(self.connection, self.group, self.topic, {})
        return OwnConsumer(consumer, self.group, self.topic, partition, first)


class _PartReading:
    """Reads one part: until a message after its end arrives, or the broker reports that the log ends there.

    Aborted transactions and the marks of committed ones take up offsets without a message.
    """

    def __init__(
        self, topic: str, part: KafkaPart, cursor: Cursor, identity: TopicIdentity, *, skips_gone: bool
    ) -> None:
        self._topic = topic
        self._topic_id = part.topic_id
        self._identity = identity
        self._partition = part.partition
        self._end = part.end
        self._newest_epoch = part.leader_epoch if part.replayed else None
        self._skips_gone = skips_gone
        self._cursor = cursor
        self.beyond: list[Any] = []
        """Messages after the end of the part."""
        self._next = part.first
        self._done = part.first >= part.end

    def chunk(self) -> list[Any]:
        """The next messages; none at the end."""
        chunk: list[Any] = []
        size, last_progress, suspicious = 0, time.monotonic(), _SUSPICIOUS_S
        while not self._done and len(chunk) < _CHUNK_ROWS and size < _CHUNK_BYTES:
            received = self._cursor.consume(self._request_size(len(chunk), size), _WAIT_S)
            before = len(chunk), self._next
            messages = received if self._are_plain(received) else self._filter(received)
            if messages and self._newest_epoch is not None:
                messages = self._drop_newer(messages, self._newest_epoch)
            if messages:
                chunk = chunk + messages if chunk else messages
                size += sum(map(len, messages))
                self._next = max(self._next, messages[-1].offset() + 1)
            self._done = self._done or self._next >= self._end
            if (len(chunk), self._next) != before:
                last_progress, suspicious = time.monotonic(), _SUSPICIOUS_S
            elif not self._done and time.monotonic() - last_progress > suspicious:
                suspicious = min(2 * suspicious, _STALLED_S)
                self._handle_stall(is_over=time.monotonic() - last_progress > _STALLED_S)
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

    def _drop_newer(self, messages: list[Any], newest: int) -> list[Any]:
        """The messages without those of a later leader: a replay has the same messages or fewer, never others.

        Epochs never decrease in a log, so the last message tells whether there are any.
        """
        if _epoch(messages[-1]) <= newest:
            return messages
        kept = [message for message in messages if _epoch(message) <= newest]
        place = messages[len(kept)].offset()
        log.warning(
            "%s: the log was truncated at or before offset %d; an unfinished epoch is replayed without what was there",
            self._place,
            place,
        )
        self._done = True
        self._cursor.seek(self._end)
        return kept

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
            self._skip_gone(*self._cursor.watermarks())
            return
        failure = kafka_failure(f"{self._place} cannot be read", error, SOURCE_FAILED)
        if isinstance(failure, PermanentError):
            raise failure
        log.warning("%s; the client retries", failure.message)

    def _handle_stall(self, *, is_over: bool) -> None:
        if self._identity.is_replaced(self._topic_id):
            raise topic_replaced(self._topic)
        if not is_over:
            return
        low, high = self._cursor.watermarks()
        if not low <= self._next <= self._end <= high:
            self._skip_gone(low, high)
            return
        raise TransientError(
            SOURCE_FAILED,
            f"{self._place}: no messages for {_STALLED_S:g} s between the offsets {self._next} and {self._end}",
        )

    def _skip_gone(self, low: int, high: int) -> None:
        """Continues with the offsets that are left, if that is allowed."""
        text = f"{self._place} no longer has all offsets from {self._next} to {self._end}: it has {low} up to {high}"
        if not self._skips_gone:
            hint = "restart; on_missing_offsets of the source decides where to resume"
            raise PermanentError(OFFSETS_GONE, text, hint=hint)
        begin = min(max(self._next, low), self._end)
        if begin >= high:
            begin = self._end
        log.warning("%s; %d offsets are skipped", text, begin - self._next)
        self._next = begin
        self._cursor.seek(begin)


def topic_replaced(topic: str) -> TransientError:
    return TransientError(SOURCE_FAILED, f"topic '{topic}' was deleted and created again while it was read")


def _epoch(message: Any) -> int:
    """The epoch of the leader that wrote a message; -1 if unknown."""
    epoch = message.leader_epoch()
    return epoch if isinstance(epoch, int) else -1
