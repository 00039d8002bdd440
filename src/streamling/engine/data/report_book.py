"""The reports of the current epoch, from this process and from workers.

Workers send theirs through one Spark accumulator per run, separately from the rows; Spark merges those of successful
attempts only. A part that is read twice, for instance by a retried task, reports twice under one key, so nothing is
counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamling.connector import Report

if TYPE_CHECKING:
    from pyspark import SparkContext

ReportKey = tuple[str, str, int, int]
"""Epoch id, node id, number of the part or partition, and the attempt (0 where attempts have no side effects)."""
SELECTION = -1
"""In place of the number of a part: rows of a source that its reader has read and its filter or columns cannot use."""


def given_to(node: str) -> str:
    """The key of the rows of a node as those who read them have counted them."""
    return f"rows of {node}"


class ReportBook:
    def __init__(self) -> None:
        self._reports: dict[ReportKey, Report] = {}
        self._accumulator: Any = None

    def sender(self, context: SparkContext) -> Any:
        """The accumulator, for a task to send reports: `add({key: report})`."""
        if self._accumulator is None:
            from streamling.engine.data.report_accumulator import ReportMerger

            self._accumulator = context.accumulator(self._reports, ReportMerger())
        return self._accumulator

    def begin(self, epoch: str) -> None:
        """Forget the reports of other epochs: those of abandoned epochs are not used any more."""
        for key in [key for key in list(self._reports) if key[0] != epoch]:  # late tasks may add some meanwhile
            self._reports.pop(key, None)

    def add(self, epoch: str, node: str, report: Report, part: int = 0) -> None:
        """Add a report of this process, which handles all rows of an epoch as one part."""
        self._reports[epoch, node, part, 0] = report

    def of(self, epoch: str, node: str) -> Mapping[int, Report]:
        """The reports of a node in an epoch, by part, in order."""
        keys = sorted((key[2], key) for key in list(self._reports) if key[:2] == (epoch, node))
        return {part: self._reports[key] for part, key in keys}

    def attempt(self, epoch: str, node: str, partition: int, attempt: int) -> Report | None:
        return self._reports.get((epoch, node, partition, attempt))

    def forget(self, epoch: str) -> None:
        for key in [key for key in list(self._reports) if key[0] == epoch]:
            self._reports.pop(key, None)

    def __len__(self) -> int:
        return len(self._reports)
