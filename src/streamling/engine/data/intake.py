"""What one source gives to an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from streamling.connector import Json, Report, Slice

if TYPE_CHECKING:
    import pyarrow as pa

# Rows in the driver go to Spark in chunks of about this size, each a partition: Java's memory holds everything that
# Spark makes of a chunk, in several copies.
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Intake:
    """Slices, and their rows if they were read in the driver; otherwise the executors read them.

    Rows without slices come from a source that cannot replay them.
    """

    slices: tuple[Slice, ...]
    batches: tuple[pa.RecordBatch, ...] | None
    report: Report
    """The report of reading them; an estimate if the executors will read them."""
    chunk_rows: int = 0
    """Rows per partition in Spark, if the driver has the rows. Recorded with the epoch: functions that depend on a
    row's place, such as `random()`, give the same values in a replay."""

    batch_counts: tuple[int, ...] = ()
    """The number of batches of each slice."""
    read_s: float = 0.0
    """How long the driver has read them, in seconds."""
    phases: Mapping[str, Report] = field(default_factory=dict)
    """For a source with phases: the report of each that the driver has read, in their order."""

    @property
    def batches_by_slice(self) -> list[tuple[pa.RecordBatch, ...]]:
        """The batches of each slice; one group with all batches if there are no slices."""
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
    """The number of rows per chunk, from the average size of a report's rows."""
    if report.bytes <= CHUNK_BYTES:
        return max(report.rows, 1)
    return max(1, report.rows * CHUNK_BYTES // report.bytes)
