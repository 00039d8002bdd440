"""The buffer of a source that is read ahead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from streamling.connector import Offer, Report, Slice
from streamling.connector.reports import combine
from streamling.engine.data.intake import Intake

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
