"""What a source and a sink promise the engine, and what the engine promises them.

An *epoch* takes one slice of every source that has something, runs the pipeline over it, lets every
sink write and commit, and only then moves the stored positions. Everything here serves that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of one source between two positions of one state key.

    Reading it again gives the same rows in the same order or, where the store has expired some,
    fewer; never others. `parts` are what the readers get, one after the other or side by side.
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
    """How much the engine can take: at most `rows`, cut into about `parts` parts of at least `part_rows` each."""

    rows: int
    parts: int
    part_rows: int

    def cut(self, first: int, end: int) -> tuple[tuple[int, int], ...]:
        """A stretch of numbers cut into parts, in order."""
        count = max(1, min(self.parts, (end - first) // self.part_rows))
        edges = [first + (end - first) * i // count for i in range(count + 1)]
        return tuple(pairwise(edges))


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source has: slices to be read, at most one per state key.

    A source that cannot read anything twice offers the rows themselves, as `batches` without slices. It keeps
    its own position and is told with `HearsMarkers` and `HearsFinalizers` when to note and when to store it.
    """

    slices: tuple[Slice, ...] = ()
    batches: tuple[pa.RecordBatch, ...] = ()
    bad: tuple[BadRow, ...] = ()
    """Rows in hand that cannot be used."""
    waiting: int = 0
    """Rows that could be offered right behind these, where the source knows."""

    @property
    def rows(self) -> int:
        in_hand: int = sum(batch.num_rows for batch in self.batches)
        return sum(s.rows for s in self.slices) + in_hand


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read, or that a transform refuses: stands where the row would have stood.

    The node's `on_error` decides what becomes of it.
    """

    reason: str
    """One stable word, such as `decode_error`."""
    message: str
    source: Mapping[str, Json]
    """Where it stood, for instance `file` and `row`; the node is added to it. Empty if nobody knows."""
    version: str = ""
    """Tells rows apart that stood at one place at different times, as in a file that was rewritten."""
    raw: bytes | None = None
    raw_key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    row: Json = None
    """The row as it came into the node, where there was one."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Something a reader has passed over or seen that is no row; told to a source that `HearsCounts`."""

    what: str
    count: int


@dataclass(frozen=True, slots=True)
class Reached:
    """Everything of a part before this place is given. A reader of a source that `TakesBack` says it now and then."""

    place: Json


class Reader(Protocol):
    """Reads parts, in the driver or in an executor; hence it is picklable and holds options only."""

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Reached]:
        """The rows of a part, in order. One that cannot be read is a BadRow; the reader goes on behind it."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Spark expressions over what a reader yields, with the names they get.

    `uses_now`: an expression has the parameter `:epoch_now`. Rows for which `condition` is not true are dropped.
    """

    columns: tuple[tuple[str, str], ...]
    uses_now: bool = False
    condition: str | None = None


class Source(Protocol):
    """The control side of a source; lives in the driver.

    The methods are called from one thread at a time.
    """

    columns: Schema
    """What `read` yields."""
    select: Projection | None
    """Applied by Spark right behind the reader; None = the columns as they are."""

    def open(self, positions: Mapping[str, Json]) -> None:
        """Start behind the stored positions; empty on a first start. Also called again after fencing."""

    def offer(self, room: Room) -> Offer | None:
        """The next rows, or None if there are none right now. Never blocks. Offers never overlap."""

    @property
    def ended(self) -> bool:
        """True once no further offer will come."""

    @property
    def bounded(self) -> bool:
        """True for a source that ends by itself."""

    def reader(self) -> Reader: ...

    def committed(self, slices: Sequence[Slice]) -> None:
        """The rows up to here are durable everywhere. May fail without harm.

        Comes from another thread than the other calls, and after a restart before `open`.
        """

    def close(self) -> None: ...


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
    slices: tuple[Slice, ...]
    loose_rows: int = 0
    """Rows of sources that offer rows instead of slices."""

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.slices) + self.loose_rows


@dataclass(frozen=True, slots=True)
class TransformContext:
    """What a transform is told when it is opened."""

    node: str
    application: str
    input_schema: Schema
    schema: Schema
    primary_key: tuple[str, ...] = ()
    width: int = 1
    """On how many streams it was planned to run."""


class Transform(Protocol):
    """Rows in, rows out, in the driver, between two steps of Spark."""

    def open(self, context: TransformContext) -> None:
        """Called once, before the first epoch."""

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow]:
        """The rows of an epoch. Called once per epoch, and again for an epoch that is repeated after a crash."""

    def close(self) -> None: ...


class Applied(Enum):
    """A sink's answer to: are the rows of these slices in the target already?"""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Placement(Enum):
    """Where rows are written. `NOWHERE`: those of large epochs are computed and counted, and no writer sees them."""

    DRIVER = "driver"
    ANY = "any"
    NOWHERE = "nowhere"


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    """What generic code may ask instead of looking at names."""

    placement: Placement
    guarantee: Guarantee


@dataclass(frozen=True, slots=True)
class Task:
    """Who writes: a failed or repeated task may leave a side effect, only acked attempts count."""

    partition: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Ack:
    """The rows that arrived at a writer; `detail`, where they are for instance, is the sink's own business."""

    rows: int
    detail: Json = None
    refused: tuple[BadRow, ...] = ()
    """Rows that arrived and cannot be written; they are not among `rows`."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink is told when it is opened."""

    node: str
    application: str
    generation: str
    schema: Schema
    primary_key: tuple[str, ...] = ()
    width: int = 1
    """On how many streams it was planned to run."""


class Writer(Protocol):
    """Writes batches, in the driver or in an executor; hence it is picklable and holds options only."""

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Ack: ...


class Sink(Protocol):
    """The control side of a sink; lives in the driver."""

    capabilities: SinkCapabilities
    target: str | None
    """Sinks with the same target are flushed one after the other; None = nothing shared."""

    def open(self, context: SinkContext) -> None:
        """Check and prepare the target; called once, before the first epoch."""

    def applied(self, slices: Sequence[Slice]) -> Applied:
        """Are the rows of these slices in the target? Asked before anything is repeated."""

    def abandon(self, epoch: Epoch) -> Applied:
        """Make sure that this epoch, recorded by an earlier owner, can never be committed under its id.

        NO: from now on it cannot. YES: it was, in the meantime. That owner may still be alive, only slow.
        """

    def writer(self) -> Writer: ...

    def commit(self, epoch: Epoch, acks: Sequence[Ack]) -> int:
        """Make the epoch durable and visible; returns the rows written. On return nothing can be lost.

        Raises Fenced if another owner has written these slices or later ones.
        """

    def abort(self, epoch: Epoch) -> None:
        """Forget what was written for an epoch that did not get through; what is committed stays."""

    def close(self) -> None: ...
