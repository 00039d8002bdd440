"""What a node may be able to do beyond its contract. The engine asks for each ability once, and uses those it finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from streamling.plan.types import Schema
from streamling.plugin.contract import Json, Offer, Slice
from streamling.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a source has got: `done` of `total`, in `unit` (`rows`, `bytes`, `files`). What is left is its lag."""

    done: int
    total: int
    unit: str


@runtime_checkable
class Measured(Protocol):
    """A source that knows how much there is to read at the moment. Asked from any thread; never blocks."""

    def extent(self) -> Extent | None: ...


@runtime_checkable
class LimitsReaders(Protocol):
    """A source that says how many of its parts are read side by side, at most."""

    @property
    def readers(self) -> int | None:
        """None = one task per part."""


@runtime_checkable
class Recalls(Protocol):
    """A source that looks at slices of a recorded epoch before they are read again."""

    def recalled(self, slices: Sequence[Slice]) -> tuple[Slice, ...]:
        """The slices, with parts that a reader can read by now. What is gone is said in a warning.

        Comes before `open`. The epoch keeps the slices it was recorded with.
        """


@runtime_checkable
class TakesBack(Protocol):
    """A source that cannot know how long its rows are before they are read, and whose readers say what they reach."""

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        """The slice up to a place its reader has reached, None if that is nowhere; the rest is offered again.

        Comes between two offers, for the last one.
        """


@runtime_checkable
class HearsMarkers(Protocol):
    """A source that keeps its own position."""

    def mark(self, epoch: int, *, last: bool = False) -> Offer | None:
        """Everything offered so far belongs to this epoch or an earlier one, and so does what this returns.

        Comes between two offers. `last`: behind the last offer, because the run is stopping.
        """


@runtime_checkable
class HearsFinalizers(Protocol):
    """A node that wants to know when an epoch is durable in every sink."""

    def finalized(self, epoch: int) -> None:
        """Comes from another thread than the other calls. Some epochs get none, only a later one does."""


@runtime_checkable
class Shared(Protocol):
    """A source whose state keys the processes that run the pipeline divide among themselves."""

    def join(self, changed: Callable[[], None]) -> None:
        """Take part in the division. Called once, early; `changed` may be called from any thread."""

    def assigned(self) -> frozenset[str]:
        """The keys that are this process's at the moment. Never blocks. Raises what keeps it from taking part."""

    def own(self, keys: frozenset[str]) -> None:
        """Offer of these keys only, from the next `open` on. Of others nothing is held or under way any longer."""


@runtime_checkable
class Watched(Protocol):
    """A source that knows when it does not get on. Asked from any thread; never blocks."""

    def trouble(self) -> str | None:
        """What is wrong at the moment, in a few words; None while all is well."""


@runtime_checkable
class HearsCounts(Protocol):
    """A source that wants to know what its readers have counted."""

    def counted(self, counts: Mapping[str, int]) -> None:
        """Of one epoch, once it is written; of an epoch that is repeated, again."""


class KeyValues(Protocol):
    """The state backend as nodes may use it: JSON values by key. Keys that begin with `__` are the engine's."""

    def items(self) -> dict[str, Json]: ...

    def get(self, key: str) -> Json: ...

    def put(self, values: Mapping[str, Json]) -> None: ...

    def remove(self, keys: Collection[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a run shares with nodes that ask for it."""

    application: str
    state: KeyValues
    metrics: Metrics


@runtime_checkable
class UsesRuntime(Protocol):
    """A node with state or metrics of its own."""

    def attach(self, runtime: Runtime) -> None:
        """Called once, before `open`."""


@runtime_checkable
class TakesColumns(Protocol):
    """A source whose columns only the outside world knows: it is told those that the pipeline was planned with."""

    def planned(self, columns: Schema, read: Collection[str]) -> None:
        """Called once, before everything else. `columns` are those of its kind's `probe`, `_gs_op` last.

        `read` are the ones that some node looks at: a source may leave out the others where that saves work.
        """


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batching node waits for: so many rows, or so many seconds. None = does not matter."""

    rows: int | None
    seconds: float | None


@runtime_checkable
class Batches(Protocol):
    """A sink that says itself what it waits for; None: it takes what there is."""

    batch: Batch | None
