"""The units of reading: slices and their parts, offers, epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from streamling.connector.reports import BadRow

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of one source between two positions of one state key.

    Reading it again gives the same rows in the same order or, if some have expired in the store, fewer; never other
    rows. `parts` are what the readers get, one after the other or in parallel.
    """

    node: str
    key: str
    start: Json
    end: Json
    parts: tuple[Json, ...]
    rows: int

    def to_json(self) -> dict[str, Json]:
        return {
            "node": self.node,
            "key": self.key,
            "start": self.start,
            "end": self.end,
            "parts": list(self.parts),
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Slice:
        parts, rows = data["parts"], data["rows"]
        if not isinstance(parts, list) or not isinstance(rows, int):
            raise ValueError(f"not a slice: {data!r}")
        return cls(str(data["node"]), str(data["key"]), data["start"], data["end"], tuple(parts), rows)


@dataclass(frozen=True, slots=True)
class Room:
    """How much a source may offer: at most `rows` rows of about `bytes` bytes in memory.

    They are cut into about `parts` parts of at least `part_rows` each. The engine has measured the size of the rows of
    this source, so `rows` respects `bytes` as far as it is known; a source that knows better offers less.
    """

    rows: int
    parts: int
    part_rows: int
    bytes: int = 1 << 30

    def cut(self, first: int, end: int) -> tuple[tuple[int, int], ...]:
        """A range of numbers cut into parts, in order."""
        count = max(1, min(self.parts, (end - first) // self.part_rows))
        edges = [first + (end - first) * i // count for i in range(count + 1)]
        return tuple(pairwise(edges))


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source has ready: slices to be read, at most one per state key.

    A source that is not `replayable` offers the rows themselves, as `batches` without slices. It keeps its own
    position: `mark` says when to note it, `finalized` when to store it.
    """

    slices: tuple[Slice, ...] = ()
    batches: tuple[pa.RecordBatch, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    """Bad rows that came with `batches`."""
    waiting: int = 0
    """Rows that could be offered right after these, if the source knows."""

    @property
    def rows(self) -> int:
        in_batches: int = sum(batch.num_rows for batch in self.batches)
        return sum(s.rows for s in self.slices) + in_batches


@dataclass(frozen=True, slots=True)
class Epoch:
    """The unit of reading, delivery, progress and recovery."""

    id: str
    number: int
    application: str
    generation: str
    """Identity of the state namespace: a fresh state never matches what an older one has written."""
    now_us: int
    """What `now()` means in this epoch, microseconds since 1970 UTC; the same when it is replayed."""
    seed: int
    """What `random()` and its like start from; the same when it is replayed."""
    slices: tuple[Slice, ...]
    loose_rows: int = 0
    """Rows of sources that offer rows instead of slices."""
    bytes: int = 0
    """The size of the rows of the source that gave most; estimated where executors read them."""
    chunk_rows: Mapping[str, int] = field(default_factory=dict)
    """By source: how many rows make a partition, 0 where every part is one."""
    previous: int = 0
    """For an epoch with rows without slices: the number of the last such epoch before it that was finalized. Mostly the
    same when a source gives the rows again after a crash."""
    lookups: Mapping[str, str] = field(default_factory=dict)
    """By lookup: the version that its queries see."""
    partition: int = 0
    """For a processor in an executor: the partition of the epoch that it has."""
    tasks: int = 1
    """For a processor in an executor: how many partitions of the epoch may be processed at once."""

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.slices) + self.loose_rows


@dataclass(frozen=True, slots=True)
class Task:
    """Which attempt at which partition this is. A failed or repeated attempt may leave a side effect; only the reports
    of successful attempts count."""

    partition: int
    attempt: int
    final: bool = True
    """False: sinks whose rows refer to rows of this sink, or the other way round, have not finished the epoch. If a row
    is rejected that may be accepted later, the writer raises WaitsForOthers."""
