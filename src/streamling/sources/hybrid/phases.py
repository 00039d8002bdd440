"""The phases of a hybrid source, and the record of how far they have got.

A phase is a source of its own. Its slices are those of the hybrid source; the number of the phase is put around every
part, so that a reader knows which phase a part belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamling.connector import Json, Offer, Slice, Source


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. `key` is its state key; if it ends with a colon, all keys that begin with it are the phase's."""

    number: int
    source: Source
    key: str

    def owns(self, key: str) -> bool:
        return key.startswith(self.key) if self.key.endswith(":") else key == self.key

    def is_begun(self, positions: Mapping[str, Json]) -> bool:
        """Whether a position of the phase is stored."""
        return any(self.owns(key) for key in positions)

    def offer(self, offer: Offer) -> Offer:
        """An offer of the phase as one of the hybrid source."""
        return replace(offer, slices=tuple(self.wrap(s) for s in offer.slices))

    def wrap(self, slice_: Slice) -> Slice:
        return replace(slice_, parts=tuple({"phase": self.number, "part": part} for part in slice_.parts))

    def unwrap(self, slice_: Slice) -> Slice:
        return replace(slice_, parts=tuple(unwrap_part(part)[1] for part in slice_.parts))


def unwrap_part(part: Json) -> tuple[int, Json]:
    """The number of the phase, and the part as the phase made it."""
    match part:
        case {"phase": int() as number, "part": inner}:
            return number, inner
    raise ValueError(f"not a part of a phase: {part!r}")


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """How far the phases have got, as the state stores it.

    current     the phase that is read; the number of bounded phases means the unbounded one
    completed   which of the bounded phases are read to their end
    offsets     by partition: the last offset that was in the tables before the first of them was read. None: nobody has
                looked yet
    ends        of every bounded phase the largest key to read; None where that is not fixed
    """

    current: int
    completed: tuple[bool, ...]
    offsets: Mapping[str, int] | None = None
    ends: tuple[str | None, ...] = ()

    @classmethod
    def begin(cls, phases: int, current: int = 0) -> PhaseRecord:
        """Phases before the current one count as completed."""
        return cls(current, tuple(number < current for number in range(phases)))

    @property
    def is_complete(self) -> bool:
        return self.current >= len(self.completed)

    def advance(self) -> PhaseRecord:
        """The current phase is read to its end."""
        return replace(
            self, current=self.current + 1, completed=tuple(n <= self.current for n in range(len(self.completed)))
        )

    def end(self, number: int) -> str | None:
        return self.ends[number] if number < len(self.ends) else None

    def to_json(self) -> dict[str, Json]:
        value: dict[str, Json] = {
            "current_phase": self.current,
            "completed_phases": list(self.completed),
            "unbounded_offsets": None if self.offsets is None else dict(self.offsets),
        }
        if any(end is not None for end in self.ends) and not self.is_complete:
            value["bounded_ends"] = list(self.ends)
        return value

    @classmethod
    def from_json(cls, value: Json, phases: int) -> PhaseRecord:
        """Raises ValueError if it is not a record. The pipeline may have got more or fewer phases since."""
        fields = value if isinstance(value, dict) else {}
        current, completed = fields.get("current_phase"), fields.get("completed_phases")
        if not isinstance(current, int) or not isinstance(completed, list):
            raise ValueError(f"not a record of phases: {value!r}")
        offsets, ends = fields.get("unbounded_offsets"), fields.get("bounded_ends")
        if current >= len(completed):
            current = phases
        same = len(completed) == phases
        return replace(
            cls.begin(phases, min(current, phases)),
            offsets={str(k): int(str(v)) for k, v in offsets.items()} if isinstance(offsets, dict) else None,
            ends=tuple(_text(end) for end in ends) if isinstance(ends, list) and same else (),
        )


def _text(value: Json) -> str | None:
    return None if value is None else str(value)


def latest_begun(phases: Sequence[Phase], positions: Mapping[str, Json]) -> int:
    """The last phase with a stored position; the first one if none has."""
    return max((phase.number for phase in phases if phase.is_begun(positions)), default=0)
