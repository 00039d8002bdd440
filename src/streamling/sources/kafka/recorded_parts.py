"""Parts of an epoch that an earlier run has recorded, as they can be read now."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from streamling.clients.kafka import LogEnd
from streamling.sources.kafka.part import KafkaPart
from streamling.sources.kafka.position import is_newer
from streamling.sources.kafka.topic_reading import TopicReading

log = logging.getLogger(__name__)


def replay_part(
    reading: TopicReading,
    part: KafkaPart,
    first: Mapping[int, int],
    ends: Mapping[int, LogEnd],
    topic_id: str | None,
) -> KafkaPart:
    """The part without the offsets that its partition no longer has. Warns about them."""
    low, (high, epoch) = first.get(part.partition, 0), ends.get(part.partition, LogEnd(0, None))
    begin = min(max(part.first, low), part.end)
    end = max(begin, min(part.end, high))
    state = f"it has {low} up to {high}"
    if None not in (topic_id, part.topic_id) and topic_id != part.topic_id:
        end = begin
        state = "the topic was deleted and created again"
    if gone := part.end - part.first - (end - begin):
        log.warning(
            "source %s: an unfinished epoch is replayed, but partition %d of topic '%s' no longer has %d of its "
            "offsets %d to %d: %s",
            reading.name,
            part.partition,
            reading.topic,
            gone,
            part.first,
            part.end,
            state,
        )
    # Without a new leader the messages are the same: the reader need not compare epochs.
    replaced = part.leader_epoch if is_newer(epoch, part.leader_epoch) else None
    return replace(part, first=begin, end=end, replayed=True, leader_epoch=replaced)
