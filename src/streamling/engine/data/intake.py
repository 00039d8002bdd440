"""What one source gives to an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from streamling.connector import Json, Report, Slice

if TYPE_CHECKING:
    import pyarrow as pa

# Rows in the driver go to Spark in chunks of about this size, each a partition: what Spark makes of a chunk stands in
# Java's memory as a whole, several times over.
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Intake:
    """Slices, and their rows if they were read in the driver; otherwise the executors read them.

    Rows without slices come from a source that cannot read them again.
    """

    slices: tuple[Slice, ...]
    batches: tuple[pa.RecordBatch, ...] | None
    report: Report
    """Of reading them; an estimate if the executors will."""
    chunk_rows: int = 0
    """How many rows make a partition in Spark, if the rows are here. Recorded with the epoch: what depends on the place
    of a row, such as `random()`, is the same in a replay."""

    batch_counts: tuple[int, ...] = ()
    """How many of the batches belong to each slice."""

    @property
    def batches_by_slice(self) -> list[tuple[pa.RecordBatch, ...]]:
        """The batches of each slice; all of them where there are no slices."""
        batches = self.batches or ()
        if not self.slices:
            return [batches]
        ends = accumulate(self.batch_counts)
        return [batches[end - count : end] for end, count in zip(ends, self.batch_counts, strict=True)]

    @property
    def large(self) -> bool:
        """Whether the executors read it."""
        return self.batches is None

    @property
    def parts(self) -> list[Json]:
        return [part for s in self.slices for part in s.parts]

    @property
    def loose_rows(self) -> int:
        return 0 if self.slices else sum(batch.num_rows for batch in self.batches or ())


def chunk_rows(report: Report) -> int:
    """How many rows of a report make a chunk."""
    if report.bytes <= CHUNK_BYTES:
        return max(report.rows, 1)
    return max(1, report.rows * CHUNK_BYTES // report.bytes)
