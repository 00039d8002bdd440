"""What a sink promises the engine: a control side in the driver, and writers that go where the rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from streamling.connector.capabilities import SinkCapabilities
from streamling.connector.reports import Report
from streamling.connector.runtime import Runtime
from streamling.connector.slices import Epoch, Json, Slice, Task
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class Applied(Enum):
    """A sink's answer to: are the rows of these slices in the target already?"""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink gets when it is opened."""

    node: str
    application: str
    generation: str
    schema: Schema
    primary_key: tuple[str, ...] = ()
    width: int = 1
    """The number of streams it was planned for."""


class WaitsForOthers(Exception):
    """Rows of a sink refer to rows that other sinks have not written yet. The engine aborts the epoch in this sink and
    lets it write again once the others have finished."""


class Writer(Protocol):
    """Writes batches. Unless its sink stays in the driver it is picklable and holds options only."""

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        """Write the rows of an epoch, or of one partition of it. Nothing of it counts before `commit`.

        Raises WaitsForOthers unless `task.final`, if rows can only be accepted after other sinks have written.
        """


class Sink(ABC):
    """The control side of a sink; lives in the driver.

    The defaults are those of a sink without a ledger: it cannot tell whether it has written an epoch, so delivery is
    at least once.
    """

    capabilities = SinkCapabilities()
    target: str | None = None
    """Sinks with the same target are flushed one after the other; None = nothing shared."""
    depends_on: frozenset[str] = frozenset()
    """Targets that rows of this sink refer to, known once it is open. Their sinks are flushed first."""

    def attach(self, runtime: Runtime) -> None:
        """Called once, before `open`: state and metrics for a sink that wants them."""
        return

    def open(self, context: SinkContext) -> None:
        """Check and prepare the target; called once, before the first epoch."""
        return

    def applied(self, slices: Sequence[Slice]) -> Applied:
        """Are the rows of these slices in the target? Called before anything is replayed."""
        return Applied.UNKNOWN

    def abandon(self, epoch: Epoch) -> Applied:
        """Make sure that this epoch, recorded by an earlier owner, can never be committed under its id.

        NO: from now on it cannot. YES: it has been committed meanwhile. That owner may still be alive, only slow.
        """
        return Applied.NO

    @property
    def doubles(self) -> bool:
        """Whether a row that is written a second time is in the target twice."""
        return True

    def ledger(self) -> Mapping[str, Json] | None:
        """The positions in the ledger of an open sink, by state key; None if it has no ledger."""
        return None

    def rewind(self, positions: Mapping[str, Json]) -> None:
        """Set the positions of these keys in the ledger: what follows them is written again. Called while no pipeline
        runs, for a sink with a ledger."""
        raise NotImplementedError

    @abstractmethod
    def writer(self) -> Writer: ...

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        """Make the epoch durable and visible; returns how many rows the target has because of it, also if an earlier
        process has written them. On return nothing can be lost.

        Raises Fenced if another owner has written these slices or later ones.
        """
        return sum(report.rows for report in reports)

    def recount(self, batches: Iterable[pa.RecordBatch]) -> int:
        """How many rows `commit` has returned for an epoch with these rows, if none was rejected: the process that has
        committed it ended before it could count them. Nothing is written. Called for a sink with a ledger."""
        return sum(batch.num_rows for batch in batches)

    def abort(self, epoch: Epoch) -> None:
        """Discard what was written for an epoch that failed; what is committed stays."""
        return

    def finalized(self, epoch: int) -> None:
        """The epoch, and every earlier one, is durable in every sink. Not called for every epoch."""
        return

    def trouble(self) -> str | None:
        """What keeps it from making progress at the moment, if it retries by itself. Called from any thread; never
        blocks."""
        return None

    def result(self) -> Sequence[Mapping[str, Any]] | None:
        """Rows for the program that started the run, once it has ended; None for sinks that write them elsewhere."""
        return None

    def close(self) -> None:
        return
