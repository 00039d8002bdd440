"""The buffer of a source that is read ahead."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamling.connector import Offer, Report, Slice
from streamling.connector.reports import combine
from streamling.engine.data.intake import Intake, chunk_rows

if TYPE_CHECKING:
    import pyarrow as pa


class OfferBuffer:
    """What a source has given and no epoch has taken yet: rows and their slices, or one large offer."""

    def __init__(self) -> None:
        self.slices: list[Slice] = []
        self.batches: list[tuple[pa.RecordBatch, ...]] = []
        """The rows of each slice; of each offer if the source has no slices."""
        self.reports: list[Report] = []
        self.rows = 0
        self.bytes = 0
        self.read_s = 0.0
        self.large: Offer | None = None
        """An offer that the executors will read."""
        self.phases: dict[str, Report] = {}
        self.oldest: float | None = None
        """When the first offer arrived."""

    def add(self, offer: Offer, intake: Intake) -> None:
        """Add what was read of an offer, or the offer itself if it is large."""
        if intake.batches is not None:
            self.slices.extend(intake.slices)
            self.batches.extend(intake.batches_by_slice)
            self.reports.append(intake.report)
            self.rows += intake.report.rows
            self.bytes += intake.report.held_bytes
            self.read_s += intake.read_s
            for phase, report in intake.phases.items():
                self.phases[phase] = combine([self.phases[phase], report]) if phase in self.phases else report
        else:
            self.large = offer
        if self.oldest is None:
            self.oldest = time.monotonic()

    def intake(self) -> Intake | None:
        """All rows that were read; None if nothing was."""
        if not self.reports:
            return None
        report = combine(self.reports)
        slices, batches = _join_slices(self.slices, self.batches)
        return Intake(slices, batches, report, chunk_rows(report), read_s=self.read_s, phases=self.phases)


def _join_slices(
    slices: Sequence[Slice], batches: Sequence[tuple[pa.RecordBatch, ...]]
) -> tuple[tuple[Slice, ...], tuple[pa.RecordBatch, ...]]:
    """Join consecutive slices of one state key, and order the rows by the joined slices: the order of a replay."""
    if not slices:
        return (), tuple(batch for group in batches for batch in group)
    slices_by_key: dict[str, Slice] = {}
    rows_by_key: dict[str, list[pa.RecordBatch]] = {}
    for slice_, group in zip(slices, batches, strict=True):
        previous = slices_by_key.get(slice_.key)
        if previous is None:
            slices_by_key[slice_.key] = slice_
        else:
            parts = previous.parts + slice_.parts
            rows = previous.rows + slice_.rows
            slices_by_key[slice_.key] = replace(previous, end=slice_.end, parts=parts, rows=rows)
        rows_by_key.setdefault(slice_.key, []).extend(group)
    return tuple(slices_by_key.values()), tuple(batch for key in slices_by_key for batch in rows_by_key[key])
