"""Creates, fills and reads topics of a broker, message by message. For people and tests; pipelines use connectors."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamling.errors import TOPIC_FAILED, StreamlingError, TransientError, UserError

_SECONDS = 20.0
_POLL_SECONDS = 0.2
# The broker decides which message is too long: the limit of the client is lower than that of many topics.
_LONGEST_BYTES = 100 << 20
Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a topic; `partition`, `offset` and `timestamp` may be None as long as it has not been sent.

    `timestamp` counts milliseconds since 1970.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None


class Topics:
    """All topics of the broker at an address."""

    def __init__(self, brokers: str) -> None:
        # Errors are raised; without this the client would print them as well.
        self._connection = {"bootstrap.servers": brokers, "log_level": 0}

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises UserError if it exists with another number of partitions."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin()  # keep it: its requests end with it
        (creation,) = admin.create_topics([wanted], request_timeout=_SECONDS).values()
        try:
            creation.result(_SECONDS)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _failure(f"topic '{topic}' cannot be created", error) from error
            if (existing := self.partitions(topic)) != partitions:
                message = f"topic '{topic}' exists already, with {existing} partitions, not {partitions}"
                raise UserError(TOPIC_FAILED, message, hint="use another name, or leave out --partitions") from error
        # The broker answers before all its parts know the topic.
        deadline = time.monotonic() + _SECONDS
        while self.partitions(topic) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def delete(self, topic: str) -> None:
        from confluent_kafka import KafkaException

        admin = self._admin()  # keep it: its requests end with it
        (deletion,) = admin.delete_topics([topic], request_timeout=_SECONDS).values()
        try:
            deletion.result(_SECONDS)
        except (KafkaException, TimeoutError) as error:
            raise _failure(f"topic '{topic}' cannot be deleted", error) from error

    def partitions(self, topic: str) -> int | None:
        """The number of its partitions; None if there is no such topic."""
        metadata = self._metadata(topic).topics[topic]
        return None if metadata.error is not None else len(metadata.partitions)

    def names(self) -> list[str]:
        """All topics except the broker's own."""
        return sorted(name for name in self._metadata().topics if not name.startswith("__"))

    def _metadata(self, *topic: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return self._admin().list_topics(*topic, timeout=_SECONDS)
        except KafkaException as error:
            raise _failure("the topics of the broker cannot be listed", error) from error

    def send(self, topic: str, messages: Iterable[Message], *, rate: float | None = None) -> int:
        """Send messages to an existing topic, at most `rate` per second. Returns their number once all are stored."""
        from confluent_kafka import Producer

        # Keys go to the same partitions as with Java clients.
        settings = {"enable.idempotence": True, "partitioner": "murmur2_random", "message.max.bytes": _LONGEST_BYTES}
        producer = Producer({**self._connection, **settings})
        errors: list[Any] = []
        began, count = time.monotonic(), 0
        for message in messages:
            if rate:
                self._pause(producer, began + count / rate)
            _produce(producer, topic, message, errors)
            count += 1
            if errors:
                break
        left = producer.flush(_SECONDS)
        if errors:
            raise UserError(TOPIC_FAILED, f"the broker refused a message to topic '{topic}': {errors[0].str()}")
        if left:
            raise TransientError(
                TOPIC_FAILED, f"{left} messages to topic '{topic}' were not stored within {_SECONDS} s"
            )
        return count

    @staticmethod
    def _pause(producer: Any, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            producer.poll(min(left, _POLL_SECONDS))

    def read(self, topic: str, *, last: int | None = None, follow: bool = False) -> Iterator[Message]:
        """The current messages of a topic, without those of aborted transactions.

        `last`: only this many of the newest, ordered by time. `follow`: also all later messages, without end.
        """
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        count = self.partitions(topic)
        if count is None:
            raise self._unknown(topic)
        settings = {
            "group.id": f"dev-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # If a message is deleted before it is read, continue with the oldest that exists.
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer({**self._connection, **settings})
        try:
            partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(count)]
            if last is not None:
                for partition in partitions:
                    partition.offset = _offset_before_end(consumer, partition, last)
            consumer.assign(partitions)
            current = _read_to_ends(consumer, set(range(count)))
            if last is None:
                yield from current
            else:
                newest = sorted(current, key=lambda m: (m.timestamp or 0, m.partition or 0, m.offset or 0))
                yield from newest[-last:] if last else ()
            while follow:
                if (message := _poll(consumer)) is not None and isinstance(message, Message):
                    yield message
        finally:
            consumer.close()

    def _unknown(self, topic: str) -> UserError:
        from streamling.spec.faults import did_you_mean

        names = self.names()
        existing = f"existing topics: {', '.join(names[:20])}" if names else "the broker has no topics"
        return UserError(
            TOPIC_FAILED, f"there is no topic '{topic}'; {existing}", hint=did_you_mean(topic, tuple(names))
        )

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self._connection)


@dataclass(frozen=True, slots=True)
class _End:
    """A partition has been read to its current end."""

    partition: int


def _offset_before_end(consumer: Any, partition: Any, count: int) -> int:
    """The offset with this many offsets left before the end; some of them may have no message."""
    from confluent_kafka import KafkaException

    try:
        low, high = consumer.get_watermark_offsets(partition, timeout=_SECONDS)
    except KafkaException as error:
        raise _failure(f"partition {partition.partition} of topic '{partition.topic}' cannot be read", error) from error
    return max(int(low), int(high) - count)


def _read_to_ends(consumer: Any, partitions: set[int]) -> Iterator[Message]:
    while partitions:
        match _poll(consumer):
            case _End(partition=number):
                partitions.discard(number)
            case Message() as message:
                yield message


def _poll(consumer: Any) -> Message | _End | None:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException

    record = consumer.poll(_POLL_SECONDS)
    if record is None:
        return None
    if record.error() is not None:
        if record.error().code() == KafkaError._PARTITION_EOF:
            return _End(record.partition())
        if record.error().retriable() or record.error().code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return None  # the client retries
        raise _failure("the topic cannot be read", KafkaException(record.error()))
    kind, time_ = record.timestamp()
    headers = tuple(record.headers() or ())
    timestamp = None if kind == TIMESTAMP_NOT_AVAILABLE else time_
    return Message(record.value(), record.key(), headers, record.partition(), record.offset(), timestamp)


def _produce(producer: Any, topic: str, message: Message, errors: list[Any]) -> None:
    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)

    options: dict[str, int] = {}
    if message.partition is not None:
        options["partition"] = message.partition
    if message.timestamp is not None:
        options["timestamp"] = message.timestamp
    while True:
        try:
            producer.produce(
                topic, message.value, message.key, headers=list(message.headers), on_delivery=on_delivery, **options
            )
        except BufferError:  # the client's queue is full: wait until some are sent
            producer.poll(_POLL_SECONDS)
        else:
            producer.poll(0)
            return


def _failure(what: str, error: Exception) -> StreamlingError:
    reason = "the broker does not answer" if isinstance(error, TimeoutError) else error.args[0].str()
    return TransientError(TOPIC_FAILED, f"{what}: {reason}", cause=error)
