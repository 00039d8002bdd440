"""The reports of the epoch under way: from this process, and from workers, by one road.

Workers send theirs beside the rows, through one Spark accumulator per run, which Spark merges for successful attempts
only. A part that is read twice, by a repeated task for instance, reports twice under one key, so nothing is counted
double.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamling.connector import Report

if TYPE_CHECKING:
    from pyspark import SparkContext

ReportKey = tuple[str, str, int, int]
"""Epoch id, node id, number of the part or partition, and the attempt where attempts leave something behind, else 0."""


class ReportBook:
    def __init__(self) -> None:
        self._reports: dict[ReportKey, Report] = {}
        self._accumulator: Any = None

    def sender(self, context: SparkContext) -> Any:
        """What a task takes along: `add({key: report})`."""
        if self._accumulator is None:
            from streamling.engine.data.report_accumulator import Merged

            self._accumulator = context.accumulator(self._reports, Merged())
        return self._accumulator

    def begin(self, epoch: str) -> None:
        """Forget the reports of other epochs: those that were abandoned are of no interest to anybody."""
        for key in [key for key in list(self._reports) if key[0] != epoch]:  # late tasks may report meanwhile
            self._reports.pop(key, None)

    def add(self, epoch: str, node: str, report: Report) -> None:
        """A report of this process, which has the rows of an epoch in one piece."""
        self._reports[epoch, node, 0, 0] = report

    def of(self, epoch: str, node: str) -> Mapping[int, Report]:
        """The reports of a node in an epoch, by part, in order."""
        found = sorted((key[2], key) for key in list(self._reports) if key[:2] == (epoch, node))
        return {part: self._reports[key] for part, key in found}

    def attempt(self, epoch: str, node: str, partition: int, attempt: int) -> Report | None:
        return self._reports.get((epoch, node, partition, attempt))

    def forget(self, epoch: str) -> None:
        for key in [key for key in list(self._reports) if key[0] == epoch]:
            self._reports.pop(key, None)

    def __len__(self) -> int:
        return len(self._reports)
