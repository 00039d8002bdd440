"""This process as a member of its consumer group: which partitions are its own.

The member receives nothing. Every partition is paused as it is assigned; the readers fetch by themselves. What the
group gives are the division of the topic among processes, and the offsets that other tools look at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamling.clients.kafka import client_settings, kafka_failure
from streamling.errors import SOURCE_FAILED, PermanentError
from streamling.spec.settings.blocks import KafkaConnection

log = logging.getLogger(__name__)

# A process that was killed gives its partitions to the others after this time.
_SESSION_MS = 10_000
# How soon a partition is noticed that was added to the topic.
_METADATA_MS = 30_000


class Membership:
    """All calls come from one thread, and so do the callbacks: from inside of `poll` and `close`.

    `gained` and `lost` get numbers of partitions. `lost` is waited for: nobody else gets them before it returns,
    unless `late` is true, which says that somebody has them already.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        group: str,
        *,
        gained: Callable[[frozenset[int]], None],
        lost: Callable[[frozenset[int], bool], None],
    ) -> None:
        from confluent_kafka import Consumer

        self._topic, self._group = topic, group
        self._gained, self._lost = gained, lost
        settings = {
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": _SESSION_MS,
            "topic.metadata.refresh.interval.ms": _METADATA_MS,
            # Those who stay keep what they have while others come and go.
            "partition.assignment.strategy": "cooperative-sticky",
        }
        self._consumer = Consumer({**client_settings(connection), **settings})
        self._consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._forget)

    def poll(self, seconds: float) -> None:
        """Hear of partitions that come and go. Raises StreamlingError if the group cannot be used."""
        message = self._consumer.poll(seconds)
        if message is None:
            return
        if message.error() is None:
            raise AssertionError("a member whose partitions are paused has received a message")
        error = kafka_failure(f"the group '{self._group}' cannot be used", message.error(), SOURCE_FAILED)
        if isinstance(error, PermanentError):
            raise error
        log.debug("%s; the client goes on trying", error.message)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Tell the group. Fails with a warning: nothing depends on it."""
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            log.warning("group %s was not told: %s", self._group, error.args[0].str())

    def close(self) -> None:
        """Leave the group, so that the others get the partitions at once."""
        self._consumer.close()

    def _assign(self, consumer: Any, partitions: Iterable[Any]) -> None:
        from confluent_kafka import TopicPartition

        # With an offset nobody has to be asked for one.
        places = [TopicPartition(place.topic, place.partition, 0) for place in partitions]
        consumer.incremental_assign(places)
        consumer.pause(places)
        self._gained(_numbers(places))

    def _revoke(self, consumer: Any, partitions: Iterable[Any]) -> None:
        self._lost(_numbers(partitions), False)

    def _forget(self, consumer: Any, partitions: Iterable[Any]) -> None:
        self._lost(_numbers(partitions), True)


def _numbers(places: Iterable[Any]) -> frozenset[int]:
    return frozenset(place.partition for place in places)
