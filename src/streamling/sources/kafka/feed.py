"""The consumers of a source in the driver: one for each partition, or one for all if there are many.

A consumer needs connections, eight files and four threads, so there cannot be one for each of hundreds of partitions.
The driver reads part after part, each of one partition. Messages of other partitions that arrive meanwhile are kept for
the parts after it, up to a number of bytes; what was dropped is fetched again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import methodcaller
from typing import Any, TypeVar

from streamling.sources.kafka.consumers import open_consumer, watermarks
from streamling.sources.kafka.position import Position
from streamling.spec.settings.blocks import KafkaConnection

# Up to so many partitions have consumers of their own, which fetch side by side.
_OWN_CONSUMERS = 4
# Messages of other partitions that are kept.
_KEPT_BYTES = 64 << 20
# A consumer of many partitions fetches little of each at a time: all of it is received before the next piece.
_SHARED = {"max.partition.fetch.bytes": 256 << 10, "fetch.max.bytes": 8 << 20}
# What a message takes in memory besides its key and value.
_MESSAGE_BYTES = 300
# How long the broker waits for messages before it answers. Partitions that are added to the consumer, or move in it,
# wait for the answer; the default is half a second.
_FETCH_WAIT_MS = 100
# Received at once.
_RECEIVE_MESSAGES = 2000
# How long a check of positions may take. A live broker answers within milliseconds.
_CHECK_S = 5.0


Value = TypeVar("Value")


@dataclass(slots=True)
class _Followed:
    """A partition that the consumer reads. `at`: where the next part has to begin to get the waiting messages."""

    at: int
    received: int
    runs: deque[list[Any]] = field(default_factory=deque)
    """Messages and events, in the lists in which they arrived."""
    kept_bytes: int = 0

    def take(self, count: int) -> list[Any]:
        if not self.runs:
            return []
        run = self.runs.popleft()
        if len(run) > count:
            self.runs.appendleft(run[count:])
        return run[:count]


class Feeds:
    """The partitions of one source, each in a feed of its own or all in one."""

    def __init__(self, connection: KafkaConnection, group: str, topic: str) -> None:
        self._make = partial(Feed, connection, group, topic)
        self._feeds: dict[int | None, Feed] = {}
        """By partition; the only one under None."""
        self._is_shared = True

    def keep_only(self, partitions: Collection[int]) -> None:
        """Stop reading other partitions."""
        if self._is_shared is not (len(partitions) > _OWN_CONSUMERS):
            self._is_shared = not self._is_shared
            self.reset()
        for feed in list(self._feeds.values()):
            feed.keep_only(partitions)
        for number in [number for number in self._feeds if number is not None and number not in partitions]:
            self._feeds.pop(number).reset()

    def expect(self, offsets: Mapping[int, int]) -> None:
        """These partitions will be read next, from these offsets."""
        for feed, own in self._by_feed(offsets):
            feed.expect(own)

    def cursor(self, partition: int, first: int) -> FeedCursor:
        return self._feed(partition).cursor(partition, first)

    def has_news(self, offsets: Mapping[int, int]) -> bool:
        """Whether a partition has received something after its offset. Sends no request, and does not wait."""
        news = [feed.has_news(own) for feed, own in self._by_feed(offsets)]  # each of them must listen
        return any(news)

    def find_truncated(self, positions: Mapping[int, Position]) -> frozenset[int]:
        """Those partitions whose log no longer has what it had up to these offsets: a new leader had fewer messages."""
        return frozenset().union(*(feed.find_truncated(own) for feed, own in self._by_feed(positions)))

    def reset(self) -> None:
        """Close all consumers. The next read opens others."""
        feeds, self._feeds = self._feeds, {}
        for feed in feeds.values():
            feed.reset()

    def _feed(self, partition: int) -> Feed:
        key = None if self._is_shared else partition
        if key not in self._feeds:
            self._feeds[key] = self._make(_SHARED if self._is_shared else {})
        return self._feeds[key]

    def _by_feed(self, values: Mapping[int, Value]) -> list[tuple[Feed, Mapping[int, Value]]]:
        if self._is_shared:
            return [(self._feed(0), values)]
        return [(self._feed(number), {number: value}) for number, value in values.items()]


class Feed:
    """A consumer of one or more partitions. It is opened when it is first needed."""

    def __init__(self, connection: KafkaConnection, group: str, topic: str, more: Mapping[str, object]) -> None:
        self._connection = connection
        self._group = group
        self._topic = topic
        self._settings = {"fetch.wait.max.ms": _FETCH_WAIT_MS, **more}
        self._consumer: Any = None
        self._followed: dict[int, _Followed] = {}
        self._expected: dict[int, int] = {}
        self._kept_bytes = 0
        self._partitions: set[int] = set()
        """All partitions that the consumer has read."""
        self._lock = threading.RLock()

    def expect(self, offsets: Mapping[int, int]) -> None:
        """These partitions will be read next, from these offsets: they are added to the consumer together."""
        with self._lock:
            self._expected = dict(offsets)

    def cursor(self, partition: int, first: int) -> FeedCursor:
        with self._lock:
            self._expected.pop(partition, None)
            if not self._is_at(partition, first):
                offsets = {**self._expected, partition: first}
                self._follow({number: Position(offset) for number, offset in offsets.items()})
        return FeedCursor(self, partition)

    def has_news(self, offsets: Mapping[int, int]) -> bool:
        """Whether a partition has received something after its offset. Sends no request, and does not wait."""
        with self._lock:
            self._follow({number: Position(offset) for number, offset in offsets.items()})
            if not self._has_news(offsets):
                self._receive(_RECEIVE_MESSAGES, 0, None)
            return self._has_news(offsets)

    def find_truncated(self, positions: Mapping[int, Position]) -> frozenset[int]:
        """Those partitions whose log no longer has what it had up to these offsets: a new leader had fewer messages.

        The client asks the leader for the end of the epoch of each position.
        """
        with self._lock:
            self._unfollow(positions)
            self._follow(positions)
            deadline = time.monotonic() + _CHECK_S
            while time.monotonic() < deadline and any(self._is_unanswered(n, p) for n, p in positions.items()):
                self._receive(_RECEIVE_MESSAGES, _FETCH_WAIT_MS / 1000, None)
            truncated = frozenset(number for number in positions if self._is_reset(number))
            self._unfollow(truncated)
            return truncated

    def keep_only(self, partitions: Collection[int]) -> None:
        """Stop reading other partitions."""
        with self._lock:
            self._unfollow([number for number in self._followed if number not in partitions])

    def reset(self) -> None:
        """Close the consumer. The next read opens another one."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            self._followed = {}
            self._kept_bytes = 0
            self._partitions = set()
        if consumer is not None:
            consumer.close()

    # Called by the cursors

    def consume(self, partition: int, count: int, seconds: float) -> list[Any]:
        with self._lock:
            followed = self._followed[partition]
            if not followed.runs:
                self._receive(count, seconds, partition)
            messages = followed.take(count)
            if not followed.runs:
                self._kept_bytes -= followed.kept_bytes
                followed.kept_bytes = 0
            return messages

    def seek(self, partition: int, offset: int) -> None:
        with self._lock:
            self._unfollow([partition])
            self._follow({partition: Position(offset)})

    def watermarks(self, partition: int) -> tuple[int, int]:
        return watermarks(self._consumer, self._topic, partition)

    def keep(self, partition: int, at: int, beyond: list[Any]) -> None:
        with self._lock:
            if followed := self._followed.get(partition):
                followed.at = at
                if beyond:
                    followed.runs.appendleft(beyond)

    # With the lock held

    def _follow(self, positions: Mapping[int, Position]) -> None:
        from confluent_kafka import TopicPartition

        moved = {n: position for n, position in positions.items() if not self._is_at(n, position.offset)}
        if not moved:
            return
        self._unfollow(moved)
        if self._consumer is None:
            self._consumer = open_consumer(self._connection, self._group, self._topic, self._settings)
        places = [
            TopicPartition(self._topic, number, position.offset)
            if position.leader_epoch is None
            else TopicPartition(self._topic, number, position.offset, leader_epoch=position.leader_epoch)
            for number, position in moved.items()
        ]
        self._consumer.incremental_assign(places)
        self._followed.update({n: _Followed(position.offset, position.offset) for n, position in moved.items()})
        self._partitions.update(moved)

    def _unfollow(self, partitions: Iterable[int]) -> None:
        from confluent_kafka import TopicPartition

        left = [number for number in partitions if number in self._followed]
        if left:
            self._consumer.incremental_unassign([TopicPartition(self._topic, number) for number in left])
            self._kept_bytes -= sum(self._followed.pop(number).kept_bytes for number in left)

    def _is_at(self, partition: int, offset: int) -> bool:
        followed = self._followed.get(partition)
        return followed is not None and followed.at == offset

    def _is_unanswered(self, partition: int, position: Position) -> bool:
        followed = self._followed.get(partition)
        return followed is not None and not followed.runs and followed.received == position.offset

    def _is_reset(self, partition: int) -> bool:
        """Whether the client has rejected the offset. It is set to report an error instead of choosing another one."""
        from confluent_kafka import KafkaError

        followed = self._followed.get(partition)
        errors = [message.error() for run in followed.runs for message in run] if followed else []
        return any(error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET for error in errors)

    def _has_news(self, offsets: Mapping[int, int]) -> bool:
        return any(
            _is_news(message, at)
            for number, at in offsets.items()
            if (followed := self._followed.get(number)) is not None
            for run in followed.runs
            for message in run
        )

    def _receive(self, count: int, seconds: float, wanted: int | None) -> None:
        """Receive messages and sort them by partition. Those of `wanted` are about to be read."""
        if len(self._partitions) == 1:
            if received := self._consumer.consume(count, seconds):
                self._add(min(self._partitions), received, wanted)
            return
        # What has already arrived, most of it perhaps of other partitions; else wait for the first messages.
        received = self._consumer.consume(_RECEIVE_MESSAGES, 0) or self._consumer.consume(count, seconds)
        for number, messages in groupby(received, methodcaller("partition")):
            self._add(number, list(messages), wanted)
        if self._kept_bytes > _KEPT_BYTES:
            self._drop_surplus(wanted)

    def _add(self, partition: int, messages: list[Any], wanted: int | None) -> None:
        followed = self._followed.get(partition)
        if followed is None and wanted is not None and messages[0].error() is not None:
            followed = self._followed[wanted]  # an event of the consumer as a whole: the reader reports it
        if followed is None or not messages:
            return
        if messages[0].error() is None and messages[0].offset() < followed.received:  # from before a seek
            messages = [m for m in messages if m.error() is not None or m.offset() >= followed.received]
        followed.runs.append(messages)
        followed.received = max([followed.received, *map(_offset_after, messages[-1:])])
        if partition != wanted:
            size = sum(map(len, messages)) + _MESSAGE_BYTES * len(messages)
            followed.kept_bytes += size
            self._kept_bytes += size

    def _drop_surplus(self, wanted: int | None) -> None:
        """Stop reading the partitions with most messages: they are fetched again when their turn comes."""
        largest = sorted(self._followed, key=lambda number: -self._followed[number].kept_bytes)
        for number in largest:
            if self._kept_bytes <= _KEPT_BYTES // 2:
                return
            if number != wanted:
                self._unfollow([number])


class FeedCursor:
    """A partition of a feed, while a part of it is read."""

    def __init__(self, feed: Feed, partition: int) -> None:
        self._feed = feed
        self._partition = partition

    def consume(self, count: int, seconds: float) -> list[Any]:
        return self._feed.consume(self._partition, count, seconds)

    def seek(self, offset: int) -> None:
        self._feed.seek(self._partition, offset)

    def watermarks(self) -> tuple[int, int]:
        return self._feed.watermarks(self._partition)

    def keep(self, at: int, beyond: list[Any]) -> None:
        self._feed.keep(self._partition, at, beyond)

    def drop(self) -> None:
        self._feed.reset()


def _is_news(message: Any, at: int) -> bool:
    """Whether it shows that the log goes on after an offset. The end of the log at the offset itself is not news."""
    from confluent_kafka import KafkaError

    error = message.error()
    return error is None or error.code() != KafkaError._PARTITION_EOF or message.offset() > at


def _offset_after(message: Any) -> int:
    offset: int | None = message.offset()
    if offset is None:
        return 0
    return offset + 1 if message.error() is None else offset


FEEDS: dict[str, Feeds] = {}
"""The feeds of the sources of this process, by the id of the source. Executors have none: they open consumers for
single parts."""
