"""A part of a slice: a range of offsets of one partition, as it is stored in the record of an epoch."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.connector import Json


@dataclass(frozen=True, slots=True)
class KafkaPart:
    """From `first` to the offset before `end`.

    `schema`: id of the Avro schema it was first read with. `replayed`: it comes from the record of an earlier run;
    offsets that the broker no longer has are skipped. `topic_id` and `leader_epoch` are those of the log when the part
    was offered, if they were known.
    """

    partition: int
    first: int
    end: int
    schema: int | None = None
    replayed: bool = False
    topic_id: str | None = None
    leader_epoch: int | None = None

    def to_json(self) -> Json:
        part: list[Json] = [self.partition, self.first, self.end, self.schema, self.replayed]
        if self.topic_id is not None or self.leader_epoch is not None:
            part += [self.topic_id, self.leader_epoch]
        return part

    @classmethod
    def from_json(cls, part: Json) -> KafkaPart:
        match part:
            case [int(partition), int(first), int(end), int() | None as schema, bool(replayed)]:
                return cls(partition, first, end, schema, replayed)
            case [
                int(partition),
                int(first),
                int(end),
                int() | None as schema,
                bool(replayed),
                str() | None as topic_id,
                int() | None as leader_epoch,
            ]:
                return cls(partition, first, end, schema, replayed, topic_id, leader_epoch)
        raise ValueError(f"not a range of offsets of a partition: {part!r}")
