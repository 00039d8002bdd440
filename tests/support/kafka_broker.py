"""A real Kafka broker for tests, and topics of their own."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from streamling.dev.stack import Stack
from streamling.dev.topics import Message, Topics
from streamling.errors import TransientError
from support.local_stack import LocalServer

# A topic that is compacted as soon as the broker looks at it.
COMPACTING = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.001",
    "max_compaction_lag_ms": "100",
}


class KafkaBroker(LocalServer):
    """A running broker that many tests share. `brokers` is what `kafka_source.brokers` takes; it survives restarts."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, "kafka")
        self.brokers = f"127.0.0.1:{self._port}"
        self.topics = Topics(self.brokers)

    def resume(self) -> None:
        """Returns when it creates topics: after standing still its parts may need a while to find each other again."""
        super().resume()
        deadline = time.monotonic() + 60
        while True:
            try:
                self.topic("resumed")
                return
            except TransientError:
                if time.monotonic() > deadline:
                    raise

    def topic(self, prefix: str = "topic", *, partitions: int = 1, **config: str) -> str:
        """A new topic that no other test knows; settings with underscores for dots."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self.topics.create(name, partitions, {key.replace("_", "."): value for key, value in config.items()})
        return name

    def produce(self, topic: str, messages: Iterable[Message | bytes | str | None]) -> int:
        """Messages, or values alone, in this order. Returns when the broker has them."""
        return self.topics.send(topic, [m if isinstance(m, Message) else Message(_bytes(m)) for m in messages])

    @contextmanager
    def producing(self, topic: str, messages: Iterator[Message], rate: float) -> Iterator[None]:
        """While this lasts messages are sent, so many per second, in this order also over restarts of the broker. All
        that were taken are stored when it ends."""
        ended = threading.Event()

        def until_ended() -> Iterator[Message]:
            while not ended.is_set():
                yield next(messages)

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(self.topics.send, topic, until_ended(), rate=rate)
            try:
                yield
            finally:
                ended.set()
            sending.result()

    def consume(self, topic: str, count: int | None = None) -> Sequence[Message]:
        """What is on the topic now, each partition in order; with a count that many, however long it takes."""
        return list(itertools.islice(self.topics.read(topic, follow=count is not None), count))

    def add_partitions(self, topic: str, count: int) -> None:
        """The topic has so many partitions from now on, producers see them, and a broker leads them."""
        self.request_partitions(topic, count)
        consumer = Consumer({"bootstrap.servers": self.brokers, "log_level": 0, "group.id": "added"})
        last = TopicPartition(topic, count - 1)
        deadline = time.monotonic() + 20
        while not self._is_led(consumer, last):
            assert time.monotonic() < deadline, "the partitions were not added"
            time.sleep(0.05)
        consumer.close()

    @staticmethod
    def _is_led(consumer: Consumer, partition: TopicPartition) -> bool:
        consumer.list_topics(partition.topic, timeout=20)  # it asks only for partitions that it knows
        try:
            return consumer.get_watermark_offsets(partition, timeout=20) is not None
        except KafkaException:
            return False

    def request_partitions(self, topic: str, count: int) -> None:
        """The topic has so many partitions, which no broker may lead for a moment."""
        admin = self._admin()
        for done in admin.create_partitions([NewPartitions(topic, count)]).values():
            done.result(20)

    def expire(self, topic: str, before: int, partition: int = 0) -> None:
        """As retention does: messages before an offset are no longer there."""
        admin = self._admin()  # its requests end with it
        for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result(20)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    def compact(self, topic: str, left: int) -> None:
        """Wait until so many messages of a topic with `COMPACTING` are left; what is newest is never looked at."""
        deadline = time.monotonic() + 60
        while len(self.consume(topic)) > left:
            assert time.monotonic() < deadline, "nothing was compacted"
            time.sleep(0.2)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
