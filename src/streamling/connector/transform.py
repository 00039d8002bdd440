"""What a transform promises the engine: a control side in the driver, and a processor that goes where the rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamling.connector.capabilities import TransformCapabilities
from streamling.connector.reports import BadRow, Counted, Timed
from streamling.connector.runtime import Runtime
from streamling.connector.slices import Epoch
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TransformContext:
    """What a transform gets when it is opened."""

    node: str
    application: str
    generation: str
    input_schema: Schema
    schema: Schema
    primary_key: tuple[str, ...] = ()
    width: int = 1
    """The number of streams it was planned for."""


class Processor(Protocol):
    """Turns rows into rows.

    Unless its transform stays in the driver it is picklable and holds options only: engines and clients are kept per
    process, keyed by the options they were made from.
    """

    def process(
        self, epoch: Epoch, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch | BadRow | Counted | Timed]:
        """Process the rows of an epoch in the driver, or of one partition of it in an executor, in order; a row that
        cannot be processed is yielded as a BadRow. Called again if the epoch is replayed or the task failed.

        Transient errors are retried in here, row by row or request by request: the engine never repeats the work of a
        processor unless it is `deterministic`.
        """


class Transform(ABC):
    """The control side of a transform; lives in the driver."""

    capabilities = TransformCapabilities()

    def attach(self, runtime: Runtime) -> None:
        """Called once, before `open`: state and metrics for a transform that wants them."""
        return

    def open(self, context: TransformContext) -> None:
        """Called once, before the first epoch."""
        return

    @abstractmethod
    def processor(self) -> Processor: ...

    def finalized(self, epoch: int) -> None:
        """The epoch, and every earlier one, is durable in every sink. Not called for every epoch."""
        return

    def count(self, counts: Mapping[str, int]) -> None:
        """The counts of its processors in an epoch that is finalized."""
        return

    def trouble(self) -> str | None:
        """What keeps it from making progress at the moment. Called from any thread; never blocks."""
        return None

    def close(self) -> None:
        return
