"""How many rows a preview gives to transforms that call other systems: their effects are real, and may cost money."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from streamling.connector import (
    BadRow,
    Counted,
    Epoch,
    Processor,
    Runtime,
    Transform,
    TransformContext,
)

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 500
"""Of one transform in one preview. Enough to find some rows behind a filter."""


class Allowance:
    """The rows that a preview may still give to one transform. Any thread may read the attributes."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._left = rows
        self.exceeded = False
        """Whether some rows were not given to the transform."""
        self.spent = False
        """Whether the transform gets no rows any more, and all results of those that it got are there."""

    def limit(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As many rows of the beginning as are left."""
        self.spent = self._left == 0
        for batch in batches:
            allowed = batch.slice(0, self._left)
            self._left -= allowed.num_rows
            self.exceeded = self.exceeded or allowed.num_rows < batch.num_rows
            if allowed.num_rows:
                yield allowed


class PreviewTransform(Transform):
    """A transform that gets no rows any more when its allowance is spent. Stays in the driver, as all previews do."""

    def __init__(self, transform: Transform, allowance: Allowance | None) -> None:
        self.capabilities = transform.capabilities
        self.allowance = allowance
        self.is_busy = False
        """Whether it is being opened, or processes rows at the moment. Any thread may read it."""
        self._transform = transform

    def attach(self, runtime: Runtime) -> None:
        self._transform.attach(runtime)

    def open(self, context: TransformContext) -> None:
        self.is_busy = True
        try:
            self._transform.open(context)
        finally:
            self.is_busy = False

    def processor(self) -> Processor:
        return _PreviewProcessor(self._transform.processor(), self)

    def finalized(self, epoch: int) -> None:
        self._transform.finalized(epoch)

    def count(self, counts: Mapping[str, int]) -> None:
        self._transform.count(counts)

    def trouble(self) -> str | None:
        return self._transform.trouble()

    def close(self) -> None:
        self._transform.close()


class _PreviewProcessor:
    def __init__(self, processor: Processor, transform: PreviewTransform) -> None:
        self._processor = processor
        self._transform = transform

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        allowance = self._transform.allowance
        self._transform.is_busy = True
        try:
            yield from self._processor.process(epoch, batches if allowance is None else allowance.limit(batches))
        finally:
            self._transform.is_busy = False
