"""A part of a slice: a stretch of offsets of one partition, as it stands in the record of an epoch."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.connector import Json


@dataclass(frozen=True, slots=True)
class Stretch:
    """From `first` to the offset before `end`.

    `schema`: id of the Avro schema it was first read with. `recalled`: the record of an earlier run named it; what the
    broker no longer has of it is passed over.
    """

    partition: int
    first: int
    end: int
    schema: int | None = None
    recalled: bool = False

    def to_json(self) -> Json:
        return [self.partition, self.first, self.end, self.schema, self.recalled]

    @classmethod
    def of(cls, part: Json) -> Stretch:
        match part:
            case [int(partition), int(first), int(end), int() | None as schema, bool(recalled)]:
                return cls(partition, first, end, schema, recalled)
        raise ValueError(f"not a stretch of a partition: {part!r}")
