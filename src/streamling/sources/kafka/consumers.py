"""The consumers of the readers: how they are opened, and which ones an executor keeps between two reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from streamling.clients.kafka import (
    REQUEST_SECONDS,
    access_denied_callback,
    client_errors,
    client_settings,
)
from streamling.errors import SOURCE_FAILED
from streamling.spec.settings.blocks import KafkaConnection

# What the client fetches ahead. Messages after the end of a part are fetched in vain if another process reads them, so
# this is small; it is still much more than one response of the broker.
_AHEAD_KB = 4 << 10
# How long the client pauses once it has fetched that much. By default it pauses a second, longer than reading it takes.
_PAUSE_MS = 10
# An idle consumer is closed after this time: another process reads its partition.
_IDLE_S = 60.0
# Each needs four threads and eight files, with many brokers more, and is rarely at the offset that is read next.
_MOST_IDLE = 4


class Cursor(Protocol):
    """A consumer at an offset of one partition, while a part of it is read."""

    def consume(self, count: int, seconds: float) -> list[Any]:
        """Up to so many messages and events of the partition; waits if there are none."""

    def seek(self, offset: int) -> None: ...

    def watermarks(self) -> tuple[int, int]:
        """The oldest offset that the broker has, and the offset after the newest."""

    def keep(self, at: int, beyond: list[Any]) -> None:
        """The part is read up to this offset; `beyond` was received and belongs to the next part."""

    def drop(self) -> None:
        """Reading has failed: the next read starts with a new consumer."""


def open_consumer(connection: KafkaConnection, group: str, topic: str, more: Mapping[str, object]) -> Any:
    """A consumer that never joins its group, and has no partitions yet."""
    from confluent_kafka import Consumer

    settings = {
        "group.id": group,
        "enable.auto.commit": False,
        # The default would jump to the end of the log if offsets are gone, without an error.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": _AHEAD_KB,
        "fetch.queue.backoff.ms": _PAUSE_MS,
        **more,
    }
    what = f"topic '{topic}' cannot be read at {connection.brokers}"
    callback = {"error_cb": access_denied_callback(what, SOURCE_FAILED)}
    with client_errors(what, SOURCE_FAILED):
        return Consumer({**client_settings(connection), **settings, **callback})


def watermarks(consumer: Any, topic: str, partition: int) -> tuple[int, int]:
    """The oldest offset that the broker has, and the offset after the newest."""
    from confluent_kafka import TopicPartition

    with client_errors(f"offsets of partition {partition} of topic '{topic}' cannot be looked up", SOURCE_FAILED):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_SECONDS)
        return int(low), int(high)


class OwnConsumer:
    """A cursor with a consumer of its own. Between two reads it is in the pool."""

    def __init__(self, consumer: Any, group: str, topic: str, partition: int, first: int) -> None:
        self.consumer = consumer
        self.key = (group, topic, partition)
        self.at = first
        self.since = 0.0
        self._messages: list[Any] = []
        self.seek(first)

    def consume(self, count: int, seconds: float) -> list[Any]:
        waiting, self._messages = self._messages, []
        received: list[Any] = waiting or self.consumer.consume(count, seconds)
        return received

    def seek(self, offset: int) -> None:
        from confluent_kafka import TopicPartition

        _, topic, partition = self.key
        self.consumer.assign([TopicPartition(topic, partition, offset)])

    def watermarks(self) -> tuple[int, int]:
        _, topic, partition = self.key
        return watermarks(self.consumer, topic, partition)

    def keep(self, at: int, beyond: list[Any]) -> None:
        self.at = at
        self._messages = beyond
        POOL.put(self)

    def drop(self) -> None:
        self.consumer.close()


class ConsumerPool:
    """Open consumers between two reads: a part may begin where the last one of its partition ended.

    The key has the group, which differs for every source, because two sources may read one topic.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], OwnConsumer] = {}
        self._lock = threading.Lock()

    def take(self, group: str, topic: str, partition: int, at: int) -> OwnConsumer | None:
        with self._lock:
            idle = self._idle.get((group, topic, partition))
            if idle is None or idle.at != at or time.monotonic() - idle.since > _IDLE_S:
                return None
            return self._idle.pop(idle.key)

    def put(self, idle: OwnConsumer) -> None:
        """Closes the ones that have been idle longest, if there are too many."""
        idle.since = time.monotonic()
        with self._lock:
            surplus = [self._idle.pop(idle.key)] if idle.key in self._idle else []
            self._idle[idle.key] = idle
            oldest = sorted(self._idle.values(), key=lambda one: one.since)
            expired = [one for one in oldest if idle.since - one.since > _IDLE_S]
            for one in max(expired, oldest[: max(0, len(oldest) - _MOST_IDLE)], key=len):
                surplus.append(self._idle.pop(one.key))
        for one in surplus:
            one.consumer.close()

    def __len__(self) -> int:
        return len(self._idle)


POOL = ConsumerPool()
"""The idle consumers of this process."""
