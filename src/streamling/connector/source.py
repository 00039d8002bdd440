"""What a source promises the engine: a control side in the driver, and readers that go where the rows are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamling.connector.capabilities import SourceCapabilities
from streamling.connector.reports import BadRow, Counted, Reached, Timed
from streamling.connector.runtime import Runtime
from streamling.connector.slices import Json, Offer, Room, Slice
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a source has got: `done` of `total`, in `unit` (`rows`, `bytes`, `files`). What is left is its lag."""

    done: int
    total: int
    unit: str


@dataclass(frozen=True, slots=True)
class Projection:
    """Spark expressions over what a reader yields, with the names they get.

    Rows for which `condition` is not true are dropped.
    """

    columns: tuple[tuple[str, str], ...]
    condition: str | None = None
    reads: frozenset[str] = frozenset()
    """The columns that the expressions and the condition look at."""
    functions: frozenset[str] = frozenset()
    """The functions of plugins they call."""
    parameters: frozenset[str] = frozenset()
    """The parameters of the epoch that are in them."""

    def query(self, view: str) -> str:
        """The query over what the reader yields."""
        from streamling.plan.sql.epoch import EPOCH_SEED, number_rows
        from streamling.plan.sql.values import identifier

        columns = ", ".join(f"{text} AS {identifier(name)}" for text, name in self.columns)
        rows = number_rows(view) if EPOCH_SEED in self.parameters else view
        condition = f" WHERE {self.condition}" if self.condition is not None else ""
        return f"SELECT {columns} FROM {rows}{condition}"


class Reader(Protocol):
    """Reads parts, in the driver or in an executor; hence it is picklable and holds options only."""

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Timed | Reached]:
        """Yields the rows of a part, in order, in batches of a few megabytes at most. A row that cannot be read is
        yielded as a BadRow, and reading continues after it."""


class Decoder(Protocol):
    """Decodes what a reader could not decode, when its dead letters are replayed. Picklable, like a reader."""

    def decode(self, rows: Sequence[BadRow]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        """Decode rows that a reader has rejected, as if they had just been read. `raw`, `raw_key`, `headers` and
        `source` are those that the reader gave. A row that is still bad is yielded as a BadRow."""


class Locator(Protocol):
    """Says where rows are, to the driver, when they are rejected by a transform or a sink."""

    def places(self, part: Json) -> Iterator[Mapping[str, Json]]:
        """The place of every row that a reader yields for this part, in order, as in the `source` of a BadRow. The part
        is read again for that."""

    def rejects(self, parts: Sequence[Json], numbers: Sequence[int]) -> Mapping[int, BadRow]:
        """Rows that were read and cannot be filtered, as a reader would reject them: with place and payload, without a
        reason. `numbers` count all rows of the parts and are ascending. Rows that are gone are left out."""


class Source(ABC):
    """The control side of a source; lives in the driver.

    `open`, `offer`, `ended`, `mark` and `take_back` are called from one thread at a time. Order of calls: `prepare`,
    `attach`, `join`, then `open` and offers until the end or the next `open`, then `close`.
    """

    columns: Schema
    """The columns that `read` yields."""
    select: Projection | None = None
    """Applied by Spark right after the reader; None = the columns as they are."""
    capabilities = SourceCapabilities()

    def prepare(self, columns: Schema, read: Collection[str]) -> None:
        """Called once, before everything else. `columns` are those the pipeline was planned with, `_gs_op` last.

        `read` are those that some node uses: a source may leave out the others if that saves work.
        """
        return

    def attach(self, runtime: Runtime) -> None:
        """Called once, before `open`: state and metrics for a source that wants them."""
        return

    @abstractmethod
    def open(self, positions: Mapping[str, Json]) -> None:
        """Start after the stored positions; empty on the first start. Called again when the run was fenced."""

    @abstractmethod
    def offer(self, room: Room) -> Offer | None:
        """The next rows, or None if there are none right now. Never blocks. Offers never overlap."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """True once no further offer will come."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """True for a source that ends by itself."""

    @property
    def drains(self) -> bool:
        """Whether rows that were read are written and recorded when the run is stopped, unless the settings say
        otherwise. True for sources that are expensive to read again."""
        return self.bounded

    @abstractmethod
    def reader(self) -> Reader: ...

    def check_read(self, slices: Sequence[Slice]) -> None:
        """Called after the driver has read these slices, before an epoch gets their rows. Raises TransientError if they
        may be other rows than those that were offered; then the slices are read again."""
        return

    def decoder(self) -> Decoder | None:
        """For the replay of dead letters; None if the bad rows of its readers cannot be decoded again. Called after
        `prepare`; the source is neither opened nor joined."""
        return None

    def locator(self) -> Locator | None:
        """For dead letters of transforms and sinks; None if the places of rows are not known."""
        return None

    def committed(self, slices: Sequence[Slice]) -> None:
        """The rows of these slices are durable in every sink. May fail without harm.

        Called from another thread than the other methods, and after a restart before `open`.
        """
        return

    def close(self) -> None:
        return

    # Replay of recorded epochs

    def recall(self, slices: Sequence[Slice]) -> tuple[Slice, ...]:
        """The slices of a recorded epoch, with parts that a reader can read now. Warns about rows that are gone.

        Called before `open`. The epoch keeps the slices it was recorded with.
        """
        return tuple(slices)

    # Capability `takes_back`

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        """The slice up to a place that its reader has reached, None if it has reached none; the rest is offered again.

        Called between two offers, for the last one.
        """
        return slice_

    # Capability `replayable` missing: the source keeps its own position

    def mark(self, epoch: int, *, last: bool = False) -> Offer | None:
        """Everything offered so far belongs to this epoch or an earlier one, and so does what this returns.

        Called between two offers. `last`: after the last offer, because the run is stopping.
        """
        return None

    def finalized(self, epoch: int) -> None:
        """The epoch, and every earlier one, is durable in every sink.

        Called from another thread, and not for every epoch.
        """
        return

    # Capability `shared`

    def join(self, changed: Callable[[], None]) -> None:
        """Join the processes that divide the keys. Called once, early; `changed` may be called from any thread."""
        return

    def assigned(self) -> frozenset[str]:
        """The keys of this process at the moment. Never blocks. Raises the error that keeps it from taking part."""
        return frozenset()

    def own(self, keys: frozenset[str]) -> None:
        """Offer only these keys from the next `open` on. Nothing of other keys is buffered or in flight any longer."""
        return

    def phase(self, slice_: Slice) -> str | None:
        """The phase that a slice is of, if the source reads several systems one after the other: metrics of rows have
        it in their `id`. None for a slice without rows of its own."""
        return None

    # For progress and metrics: called from any thread, never block

    def extent(self) -> Extent | None:
        """How much there is to read at the moment; None if unknown."""
        return None

    def reading_since(self) -> float | None:
        """For a source that reads in threads of its own: since when, on the monotonic clock, one does not return."""
        return None

    def trouble(self) -> str | None:
        """What keeps the source from making progress at the moment, in a few words; None while all is well."""
        return None

    def count(self, counts: Mapping[str, int]) -> None:
        """The counts of its readers in an epoch that is finalized."""
        return
