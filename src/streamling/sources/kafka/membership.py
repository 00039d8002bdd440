"""This process as a member of its consumer group: which partitions are assigned to it.

The member receives no messages. Every partition is paused when it is assigned; the readers have their own consumers.
The group serves to divide the topic among processes, and to commit offsets for other tools.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from streamling.clients.kafka import client_errors, client_settings, kafka_failure
from streamling.errors import SOURCE_FAILED, PermanentError
from streamling.spec.settings.blocks import KafkaSourceSettings

log = logging.getLogger(__name__)

# How often the client looks for partitions that were added to the topic.
_METADATA_MS = 30_000
# The client sends a commit three times, and neither gives partitions away nor closes before it has an answer. Its own
# limit for each attempt is 60 s. A process whose requests take longer than its session is no member any more anyway.
_SHORTEST_REQUEST_MS, _LONGEST_REQUEST_MS = 5_000, 60_000
# The pause before offsets that could not be committed are committed again.
_COMMIT_PAUSE_S = 1.0
# How long the end of a run waits for the last commit, and for the client to leave the group. A broker that is alive
# needs milliseconds; without it, the group notices the end of the process by its session.
_LAST_COMMIT_S, _CLOSE_S = 3.0, 10.0


class Membership:
    """All calls must come from one thread. The callbacks are called in it, from `poll`; from `close` in another one.

    `on_gain` and `on_loss` get numbers of partitions. No other process gets the partitions before `on_loss` returns,
    unless its second argument is true: then another process may have them already.

    No call waits for the broker: a member that does not poll cannot follow a rebalance, and blocks the group.
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
        self._topic = topic
        self._group = group
        self._on_gain = on_gain
        self._on_loss = on_loss
        session_ms = connection.session_timeout_ms
        self._settings = {
            **client_settings(connection),
            "group.id": group,
            "client.id": client_id,
            "enable.auto.commit": False,
            "session.timeout.ms": session_ms,
            "socket.timeout.ms": min(max(session_ms, _SHORTEST_REQUEST_MS), _LONGEST_REQUEST_MS),
            # Three may be lost before the broker takes the process for dead.
            "heartbeat.interval.ms": min(3000, session_ms // 4),
            "topic.metadata.refresh.interval.ms": _METADATA_MS,
            # Members keep their partitions while others join and leave.
            "partition.assignment.strategy": "cooperative-sticky",
        }
        self._clients = 0
        self._assigned: frozenset[int] = frozenset()
        self._to_commit: dict[int, int] = {}
        self._in_flight: dict[int, int] = {}
        """The offsets of a commit that has no answer yet."""
        self._next_commit = 0.0
        self._has_warned = False
        self._consumer = self._subscribe()

    def _subscribe(self) -> Any:
        from confluent_kafka import Consumer

        on_commit = partial(self._note_commit, self._clients + 1)
        with client_errors(f"the group '{self._group}' cannot be used", SOURCE_FAILED):
            consumer = Consumer({**self._settings, "on_commit": on_commit})
        self._clients += 1
        consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._forget)
        return consumer

    @property
    def member_id(self) -> str | None:
        """The id that the coordinator gave to this member; None before it has joined."""
        return self._consumer.memberid() or None

    def rejoin(self) -> None:
        """Joins with a new client, for one that has lost the group and does not find its way back."""
        old, assigned = self._consumer, self._assigned
        self._consumer = self._subscribe()
        self._assigned = frozenset()
        self._in_flight = {}
        _close_beside(old)
        if assigned:
            self._on_loss(assigned, True)

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
        """Commits offsets to the group; the answer comes with a later `poll`. Offsets whose commit fails are committed
        again as long as the partition is assigned; only the lag that other tools show depends on them."""
        from confluent_kafka import KafkaException, TopicPartition

        self._to_commit.update(offsets)
        if self._in_flight or not self._to_commit or time.monotonic() < self._next_commit:
            return
        places = [TopicPartition(self._topic, number, offset) for number, offset in self._to_commit.items()]
        self._in_flight = dict(self._to_commit)
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            self._note_commit(self._clients, error.args[0], ())

    def _note_commit(self, client: int, error: Any, places: Iterable[Any]) -> None:
        if client != self._clients:
            return
        offsets, self._in_flight = self._in_flight, {}
        failure = error or next((place.error for place in places if place.error), None)
        if failure is None:
            self._to_commit = {n: at for n, at in self._to_commit.items() if offsets.get(n) != at}
            self._has_warned = False
            return
        self._to_commit = {n: at for n, at in self._to_commit.items() if n in self._assigned}
        self._next_commit = time.monotonic() + _COMMIT_PAUSE_S
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        log.log(level, "offsets were not committed to the group %s: %s", self._group, failure.str())

    def close(self) -> None:
        """Leaves the group, so that its partitions are assigned to others at once. Waits for the broker for seconds."""
        deadline = time.monotonic() + _LAST_COMMIT_S
        while (self._in_flight or self._to_commit) and not self._has_warned and time.monotonic() < deadline:
            self.commit({})
            self._consumer.poll(0.05)
        _close_beside(self._consumer).join(_CLOSE_S)

    def _assign(self, consumer: Any, partitions: Iterable[Any]) -> None:
        from confluent_kafka import TopicPartition

        # With an offset the client does not ask the broker for one.
        places = [TopicPartition(place.topic, place.partition, 0) for place in partitions]
        consumer.incremental_assign(places)
        consumer.pause(places)
        if consumer is self._consumer:
            gained = _numbers(places)
            self._assigned |= gained
            # Another member may have committed later offsets since these were left.
            self._to_commit = {n: at for n, at in self._to_commit.items() if n not in gained}
            self._on_gain(gained)

    def _revoke(self, consumer: Any, partitions: Iterable[Any]) -> None:
        self._lose(consumer, _numbers(partitions), late=False)

    def _forget(self, consumer: Any, partitions: Iterable[Any]) -> None:
        self._lose(consumer, _numbers(partitions), late=True)

    def _lose(self, consumer: Any, partitions: frozenset[int], *, late: bool) -> None:
        if consumer is self._consumer:
            self._assigned -= partitions
            self._on_loss(partitions, late)


def _close_beside(consumer: Any) -> threading.Thread:
    """Closes a client in a thread of its own: it waits for answers of a broker that may be away."""
    thread = threading.Thread(target=consumer.close, name="kafka group close", daemon=True)
    thread.start()
    return thread


def _numbers(places: Iterable[Any]) -> frozenset[int]:
    return frozenset(place.partition for place in places)
