"""A part of a slice: a range of offsets of one partition, as it is stored in the record of an epoch."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.connector import Json


@dataclass(frozen=True, slots=True)
class KafkaPart:
    """From `first` to the offset before `end`.

    `schema`: id of the Avro schema it was first read with. `replayed`: it comes from the record of an earlier run;
    offsets that the broker no longer has are skipped.
    """

    partition: int
    first: int
    end: int
    schema: int | None = None
    replayed: bool = False

    def to_json(self) -> Json:
        return [self.partition, self.first, self.end, self.schema, self.replayed]

    @classmethod
    def from_json(cls, part: Json) -> KafkaPart:
        match part:
            case [int(partition), int(first), int(end), int() | None as schema, bool(replayed)]:
                return cls(partition, first, end, schema, replayed)
        raise ValueError(f"not a range of offsets of a partition: {part!r}")
