"""This process as a member of its consumer group: which partitions are assigned to it.

The member receives no messages. Every partition is paused when it is assigned; the readers have their own consumers.
The group serves to divide the topic among processes, and to commit offsets for other tools.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamling.clients.kafka import client_errors, client_settings, kafka_failure
from streamling.errors import SOURCE_FAILED, PermanentError
from streamling.spec.settings.blocks import KafkaSourceSettings

log = logging.getLogger(__name__)

# How often the client looks for partitions that were added to the topic.
_METADATA_MS = 30_000


class Membership:
    """All calls must come from one thread. The callbacks are called in it, from `poll` and `close`.

    `on_gain` and `on_loss` get numbers of partitions. No other process gets the partitions before `on_loss` returns,
    unless its second argument is true: then another process may have them already.
    """

    def __init__(
        self,
        connection: KafkaSourceSettings,
        topic: str,
        group: str,
        client_id: str,
        *,
        on_gain: Callable[[frozenset[int]], None],
        on_loss: Callable[[frozenset[int], bool], None],
    ) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._group = group
        self._on_gain = on_gain
        self._on_loss = on_loss
        settings = {
            "group.id": group,
            "client.id": client_id,
            "enable.auto.commit": False,
            "session.timeout.ms": connection.session_timeout_ms,
            # Three may be lost before the broker takes the process for dead.
            "heartbeat.interval.ms": min(3000, connection.session_timeout_ms // 4),
            "topic.metadata.refresh.interval.ms": _METADATA_MS,
            # Members keep their partitions while others join and leave.
            "partition.assignment.strategy": "cooperative-sticky",
        }
        with client_errors(f"the group '{group}' cannot be used", SOURCE_FAILED):
            self._consumer = Consumer({**client_settings(connection), **settings})
        self._consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._forget)

    def poll(self, seconds: float) -> None:
        """Handles events of the group for so many seconds. Raises StreamlingError if the group cannot be used."""
        message = self._consumer.poll(seconds)
        if message is None:
            return
        if message.error() is None:
            raise AssertionError("a member whose partitions are paused has received a message")
        error = kafka_failure(f"the group '{self._group}' cannot be used", message.error(), SOURCE_FAILED)
        if isinstance(error, PermanentError):
            raise error
        log.debug("%s; the client retries", error.message)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commits offsets to the group. A failure is only a warning: nothing depends on them."""
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            log.warning("offsets were not committed to the group %s: %s", self._group, error.args[0].str())

    def close(self) -> None:
        """Leaves the group, so that its partitions are assigned to others at once."""
        self._consumer.close()

    def _assign(self, consumer: Any, partitions: Iterable[Any]) -> None:
        from confluent_kafka import TopicPartition

        # With an offset the client does not ask the broker for one.
        places = [TopicPartition(place.topic, place.partition, 0) for place in partitions]
        consumer.incremental_assign(places)
        consumer.pause(places)
        self._on_gain(_numbers(places))

    def _revoke(self, consumer: Any, partitions: Iterable[Any]) -> None:
        self._on_loss(_numbers(partitions), False)

    def _forget(self, consumer: Any, partitions: Iterable[Any]) -> None:
        self._on_loss(_numbers(partitions), True)


def _numbers(places: Iterable[Any]) -> frozenset[int]:
    return frozenset(place.partition for place in places)
