"""The topics of a broker: made, filled and read message by message. For people and tests; pipelines have connectors."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamling.errors import TOPIC_FAILED, StreamlingError, TransientError, UserError

_SECONDS = 20.0
_POLL_SECONDS = 0.2
# What is too long is for the broker to say: the client's own bound is lower than that of most topics that matter.
_LONGEST_BYTES = 100 << 20
Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Message:
    """What stands at one place of a topic; without `partition`, `offset` and `timestamp` as long as it is not there.

    `timestamp` counts milliseconds since 1970.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None


class Topics:
    """All topics behind an address."""

    def __init__(self, brokers: str) -> None:
        # What goes wrong is raised; the client would print it too.
        self._connection = {"bootstrap.servers": brokers, "log_level": 0}

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic. Raises UserError if it is there with another number of partitions."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin()  # its requests end with it
        (made,) = admin.create_topics([wanted], request_timeout=_SECONDS).values()
        try:
            made.result(_SECONDS)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _failed(f"topic '{topic}' cannot be created", error) from error
            if (found := self.partitions(topic)) != partitions:
                message = f"topic '{topic}' is there already, with {found} partitions, not {partitions}"
                raise UserError(TOPIC_FAILED, message, hint="take another name, or leave it as it is") from error
        # The answer comes before every part of the broker knows of it.
        deadline = time.monotonic() + _SECONDS
        while self.partitions(topic) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def delete(self, topic: str) -> None:
        from confluent_kafka import KafkaException

        admin = self._admin()  # its requests end with it
        (gone,) = admin.delete_topics([topic], request_timeout=_SECONDS).values()
        try:
            gone.result(_SECONDS)
        except (KafkaException, TimeoutError) as error:
            raise _failed(f"topic '{topic}' cannot be deleted", error) from error

    def partitions(self, topic: str) -> int | None:
        """How many it has; None if there is no such topic."""
        found = self._listed(topic).topics[topic]
        return None if found.error is not None else len(found.partitions)

    def names(self) -> list[str]:
        """All but the broker's own."""
        return sorted(name for name in self._listed().topics if not name.startswith("__"))

    def _listed(self, *topic: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return self._admin().list_topics(*topic, timeout=_SECONDS)
        except KafkaException as error:
            raise _failed("the broker cannot be asked for its topics", error) from error

    def send(self, topic: str, messages: Iterable[Message], *, rate: float | None = None) -> int:
        """Put messages on a topic that is there, at most `rate` per second. Gives their number once all are stored."""
        from confluent_kafka import Producer

        # Keys go to the partitions that clients in Java send them to.
        settings = {"enable.idempotence": True, "partitioner": "murmur2_random", "message.max.bytes": _LONGEST_BYTES}
        producer = Producer({**self._connection, **settings})
        refused: list[Any] = []
        began, count = time.monotonic(), 0
        for message in messages:
            if rate:
                self._pause(producer, began + count / rate)
            _produce(producer, topic, message, refused)
            count += 1
            if refused:
                break
        left = producer.flush(_SECONDS)
        if refused:
            raise UserError(TOPIC_FAILED, f"topic '{topic}' did not take a message: {refused[0].str()}")
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
        """What is on a topic now, of aborted transactions nothing; with `last` so many of the newest, in the order of
        their times. With `follow` also all that comes later, without end."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        count = self.partitions(topic)
        if count is None:
            raise self._unknown(topic)
        settings = {
            "group.id": f"dev-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # Where a message is gone by the time it is asked for, go on with the oldest that is left.
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer({**self._connection, **settings})
        try:
            places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(count)]
            if last is not None:
                for place in places:
                    place.offset = _before_end(consumer, place, last)
            consumer.assign(places)
            present = _until_ends(consumer, set(range(count)))
            if last is None:
                yield from present
            else:
                newest = sorted(present, key=lambda m: (m.timestamp or 0, m.partition or 0, m.offset or 0))
                yield from newest[-last:] if last else ()
            while follow:
                if (message := _polled(consumer)) is not None and isinstance(message, Message):
                    yield message
        finally:
            consumer.close()

    def _unknown(self, topic: str) -> UserError:
        from streamling.spec.faults import did_you_mean

        names = self.names()
        there = f"there are {', '.join(names[:20])}" if names else "there is none"
        return UserError(TOPIC_FAILED, f"there is no topic '{topic}'; {there}", hint=did_you_mean(topic, tuple(names)))

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self._connection)


@dataclass(frozen=True, slots=True)
class _End:
    """Everything of a partition has been read for now."""

    partition: int


def _before_end(consumer: Any, place: Any, count: int) -> int:
    """The offset at which so many messages are left, gaps counted."""
    from confluent_kafka import KafkaException

    try:
        low, high = consumer.get_watermark_offsets(place, timeout=_SECONDS)
    except KafkaException as error:
        raise _failed(f"partition {place.partition} of topic '{place.topic}' cannot be read", error) from error
    return max(int(low), int(high) - count)


def _until_ends(consumer: Any, partitions: set[int]) -> Iterator[Message]:
    while partitions:
        match _polled(consumer):
            case _End(partition=number):
                partitions.discard(number)
            case Message() as message:
                yield message


def _polled(consumer: Any) -> Message | _End | None:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException

    found = consumer.poll(_POLL_SECONDS)
    if found is None:
        return None
    if found.error() is not None:
        if found.error().code() == KafkaError._PARTITION_EOF:
            return _End(found.partition())
        if found.error().retriable() or found.error().code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return None  # the client goes on trying
        raise _failed("the topic cannot be read", KafkaException(found.error()))
    kind, time_ = found.timestamp()
    headers = tuple(found.headers() or ())
    timestamp = None if kind == TIMESTAMP_NOT_AVAILABLE else time_
    return Message(found.value(), found.key(), headers, found.partition(), found.offset(), timestamp)


def _produce(producer: Any, topic: str, message: Message, refused: list[Any]) -> None:
    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(error)

    place: dict[str, int] = {}
    if message.partition is not None:
        place["partition"] = message.partition
    if message.timestamp is not None:
        place["timestamp"] = message.timestamp
    while True:
        try:
            producer.produce(
                topic, message.value, message.key, headers=list(message.headers), on_delivery=delivered, **place
            )
        except BufferError:  # the client's queue is full: let some go first
            producer.poll(_POLL_SECONDS)
        else:
            producer.poll(0)
            return


def _failed(what: str, error: Exception) -> StreamlingError:
    reason = "the broker does not answer" if isinstance(error, TimeoutError) else error.args[0].str()
    return TransientError(TOPIC_FAILED, f"{what}: {reason}", cause=error)
