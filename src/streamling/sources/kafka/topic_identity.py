"""Whether a topic is still the one whose offsets were offered.

A topic that is deleted and created again has another id, and its offsets are those of other messages. A consumer goes
on at the same offset without an error if the new topic is long enough by then. So the id is looked up after reading:
it never comes back, hence messages that were received before are those of the topic with this id.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamling.clients.kafka import topic_id_lookup
from streamling.spec.settings.blocks import KafkaConnection


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    connection: KafkaConnection
    topic: str

    def is_replaced(self, topic_id: str | None) -> bool:
        """Whether the topic has another id now. False if one of them is unknown."""
        if topic_id is None or self.is_known_replaced(topic_id):
            return topic_id is not None
        current = topic_id_lookup(self.connection, self.topic).find()
        if current is None or current == topic_id:
            return False
        _replaced.add(topic_id)
        return True

    def is_known_replaced(self, topic_id: str | None) -> bool:
        """Whether this process has found that the topic with this id is gone. Sends no request."""
        return topic_id in _replaced


_replaced: set[str] = set()
