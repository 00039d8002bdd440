"""What Spark does now."""

from __future__ import annotations

from typing import TYPE_CHECKING

Tasks = tuple[tuple[int, int], ...]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def running_work(session: SparkSession) -> tuple[Tasks, tuple[str, ...]]:
    """Something that changes when a task of Spark ends, or when one that computes a query reports more rows, as
    executors do every ten seconds. Python workers send their rows to Java in pieces of 64 kB."""
    return _completed_tasks(session), _query_metrics(session)


def _completed_tasks(session: SparkSession) -> Tasks:
    """The active stages, each with the number of its tasks that have ended."""
    tracker = session.sparkContext.statusTracker()
    stages = ((number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds())
    return tuple((number, info.numCompletedTasks) for number, info in stages if info is not None)


def _query_metrics(session: SparkSession) -> tuple[str, ...]:
    """The metrics of the queries that are being computed. Spark keeps few queries that have ended."""
    store = session._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    queries = (found.apply(index) for index in range(found.size()))
    running = (query.executionId() for query in queries if query.completionTime().isEmpty())
    return tuple(store.executionMetrics(number).toString() for number in running)
