"""The tasks that Spark runs now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext


def completed_tasks(context: SparkContext) -> tuple[tuple[int, int], ...]:
    """The active stages, each with the number of its tasks that have ended."""
    tracker = context.statusTracker()
    stages = ((number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds())
    return tuple((number, info.numCompletedTasks) for number, info in stages if info is not None)
