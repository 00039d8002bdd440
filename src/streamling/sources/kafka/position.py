"""The position of a partition, as the state stores it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from streamling.connector import Json


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset, and what identifies the log it belongs to.

    `topic_id`: a topic that is deleted and created again gets another one. `leader_epoch`: the broker raises it with
    every new leader of the partition, whose log may be shorter. Both are None in positions of older versions, and if
    the broker does not report them.
    """

    offset: int
    topic_id: str | None = None
    leader_epoch: int | None = None

    def to_json(self) -> Json:
        value: dict[str, Json] = {"offset": self.offset, "updated_at": time.time_ns() // 1_000_000}
        if self.topic_id is not None:
            value["topic_id"] = self.topic_id
        if self.leader_epoch is not None:
            value["leader_epoch"] = self.leader_epoch
        return value

    @classmethod
    def from_json(cls, value: Json) -> Position:
        """Raises ValueError if it has no offset."""
        offset = value.get("offset") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(offset, int):
            raise ValueError(f"not an offset: {value}")
        topic_id, leader_epoch = value.get("topic_id"), value.get("leader_epoch")
        return cls(
            offset,
            topic_id if isinstance(topic_id, str) else None,
            leader_epoch if isinstance(leader_epoch, int) else None,
        )


def is_newer(epoch: int | None, than: int | None) -> bool:
    """Whether a leader has come after another one. False if an epoch is not known."""
    return epoch is not None and than is not None and epoch > than
