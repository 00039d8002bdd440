"""Where partitions start: at their stored positions, or where the options say.

A start other than `earliest` is recorded for all partitions of the topic before the first message is read, in the state
that all processes of the application share. So a process that gets a partition later, after a restart for instance,
knows where it has to start. A partition that is neither stored nor recorded was added to the topic since then, and is
read from its beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from streamling.clients.kafka import Broker, LogEnd
from streamling.errors import OFFSETS_GONE, SOURCE_FAILED, PermanentError, TransientError
from streamling.sources.kafka.position import Position

if TYPE_CHECKING:
    from streamling.connector import Json, KeyValues
    from streamling.sources.kafka.topic_reading import TopicReading

log = logging.getLogger(__name__)


NEWEST = "newest "
"""Followed by a number: a start so many offsets before the end of each partition. Only previews start there."""


class Starts:
    """Decides where the partitions of a topic start, and what to do if the broker no longer has an offset."""

    def __init__(self, reading: TopicReading) -> None:
        self._reading = reading
        self._record: dict[int, Position] | None = None
        """The recorded start by partition, once it is known."""
        self.state: KeyValues | None = None
        """Shared by all processes of the application; set before anything is read."""
        self.offsets: dict[int, int] = {}
        """By partition: the last offset whose message is known already. These partitions start there."""

    @property
    def _key(self) -> str:
        return f"__kafka_start:{self._reading.node}:{self._reading.topic}"

    def unstored(
        self, broker: Broker, partitions: Collection[int], first: Mapping[int, int], *, has_positions: bool
    ) -> dict[int, Position]:
        """The starts of partitions without a stored position. `has_positions`: others of the topic have one."""
        beginning = {number: self._beginning(number, first[number]) for number in partitions}
        if self._reading.start == "earliest" or self.offsets.keys() >= set(partitions):
            return beginning
        record = self._record or self._load()
        if record is None and has_positions:
            return beginning
        self._record = self._make(broker) if record is None else record
        starts = self._record | {number: beginning[number] for number in self.offsets.keys() & beginning.keys()}
        return {number: starts.get(number, begin) for number, begin in beginning.items()}

    def _beginning(self, number: int, first: int) -> Position:
        """The given offset, or the first one of the log. A log that begins right after the given offset has lost
        nothing: that message is known."""
        if number not in self.offsets:
            return Position(first)
        return Position(max(self.offsets[number], min(first, self.offsets[number] + 1)))

    def record(self, broker: Broker) -> None:
        """Record where the partitions of the topic start, unless that is recorded already."""
        if self._record is None:
            self._record = self._load() or self._make(broker)

    def _load(self) -> dict[int, Position] | None:
        stored = self.state.get(self._key) if self.state is not None else None
        if not isinstance(stored, dict):
            return None
        return {int(number): Position.from_json(value) for number, value in stored.items()}

    def _make(self, broker: Broker) -> dict[int, Position]:
        topic_id, partitions = broker.topic_id(), broker.partitions()
        start = self._reading.start
        offsets = (
            _newest(broker, partitions, start) if start.startswith(NEWEST) else _offsets(broker, partitions, start)
        )
        if missing := [number for number in partitions if number not in offsets]:
            text = f"partition {missing[0]} of topic '{self._reading.topic}' does not report its offsets"
            raise TransientError(SOURCE_FAILED, text)
        record = {number: Position(offset, topic_id) for number, offset in offsets.items()}
        if self.state is not None:
            values: dict[str, Json] = {str(number): position.to_json() for number, position in record.items()}
            self.state.put({self._key: values})
        return record

    def resume(
        self,
        number: int,
        position: Position,
        low: int,
        end: LogEnd,
        topic_id: str | None,
        *,
        truncated: bool = False,
    ) -> int:
        """The offset to continue at: that of the position, if the log still has it; else the option decides."""
        recreated = None not in (position.topic_id, topic_id) and position.topic_id != topic_id
        stored, high = position.offset, end.offset
        if low <= stored <= high and not recreated and not truncated:
            return stored
        subject = "it"
        if recreated:
            subject = "the topic was deleted and created again, and"
        elif truncated:
            subject = "its log was truncated when its leader changed, and"
        text = (
            f"partition {number} of topic '{self._reading.topic}' no longer has the stored offset {stored}: "
            f"{subject} has {low} up to {high}"
        )
        if self._reading.on_missing == "fail":
            raise PermanentError(
                OFFSETS_GONE,
                text,
                node=self._reading.name,
                hint="set on_missing_offsets to earliest or latest, or start over with `streamling state reset`",
            )
        begin = low if self._reading.on_missing == "earliest" else high
        lost = begin - (low if recreated or truncated else stored)
        suffix = f"; {lost} messages are lost" if lost > 0 else ""
        log.warning("source %s: %s; resuming at %d%s", self._reading.name, text, begin, suffix)
        return begin


def _offsets(broker: Broker, partitions: Collection[int], start: str) -> dict[int, int]:
    return broker.end(partitions) if start == "latest" else broker.at(partitions, int(start))


def _newest(broker: Broker, partitions: Collection[int], start: str) -> dict[int, int]:
    first, ends, count = broker.first(partitions), broker.end(partitions), int(start.removeprefix(NEWEST))
    return {number: max(first[number], end - count) for number, end in ends.items() if number in first}
