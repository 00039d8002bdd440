"""Computes a query row by row in the Java of the driver: which rows fail, and which row of its input gave a row.

A task of Spark ends with the first row that cannot be computed. The iterator over a partition does not: it has taken
the row from its input when the error is raised, and the next call continues with the row after it. The input counts its
rows, which is the number of the row. So one pass finds all rows at fault, each with its own error. In the same way the
count, when a row of the result is there, tells from which row of the input it comes.

This holds for operators that handle one row after the other. Other plans, such as those with Python functions, cannot
be scanned.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamling.engine.data.spark_errors import RowFailure, classify, spark_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW_BY_ROW = frozenset(
    ("WholeStageCodegenExec", "InputAdapter", "ProjectExec", "FilterExec", "GenerateExec", "RDDScanExec")
)
_COUNTER = "numOutputRows"
_LOCAL_RELATIONS = "spark.sql.execution.arrow.localRelationThreshold"
_making = threading.Lock()
"""Pipelines of one process share the settings of the session."""


@contextmanager
def scannable_frames(session: SparkSession) -> Iterator[None]:
    """Frames made here have an input that counts its rows. Spark computes queries over a few rows while it plans them,
    unless these rows are an RDD."""
    with _making:
        before = session.conf.get(_LOCAL_RELATIONS)
        session.conf.set(_LOCAL_RELATIONS, "0")
        try:
            yield
        finally:
            session.conf.set(_LOCAL_RELATIONS, before or "0")


def scan(frame: DataFrame, node: str) -> Sequence[tuple[int, RowFailure]] | None:
    """The numbers of the input's rows that cannot be computed, and why; None if the plan cannot be scanned."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        plan = frame._jdf.queryExecution().executedPlan()
        counter = _row_counter(plan)
        return _scan(frame, plan, counter, node) if counter is not None else None
    except (PySparkException, Py4JError):  # the rows are computed in another way, which reports what is wrong
        return None


def find_inputs(frame: DataFrame, numbers: Sequence[int]) -> dict[int, int] | None:
    """By the number of a row of the result, for these, which are sorted: the number of the input's row that gave it.
    None if the plan cannot be scanned, or a row cannot be computed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        plan = frame._jdf.queryExecution().executedPlan()
        counter = _row_counter(plan)
        return _find_inputs(frame, plan, counter, numbers) if counter is not None else None
    except (PySparkException, Py4JError):
        return None


def _find_inputs(frame: DataFrame, plan: Any, counter: Any, numbers: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    wanted = iter(numbers)
    number, passed = next(wanted, None), 0
    for rows in _iterators(frame, plan):
        while number is not None:
            passed += rows.take(number - passed).length()
            if passed < number or not rows.hasNext():
                break  # the row is in a later partition
            found[number] = counter.value() - 1
            number = next(wanted, None)
    return found


def _iterators(frame: DataFrame, plan: Any) -> Iterator[Any]:
    """The rows of one partition after the other."""
    context = getattr(getattr(frame.sparkSession._jvm.org.apache.spark, "TaskContext$"), "MODULE$").empty()
    rdd = plan.execute()
    for partition in rdd.partitions():
        yield rdd.iterator(partition, context)


def _scan(frame: DataFrame, plan: Any, counter: Any, node: str) -> Sequence[tuple[int, RowFailure]] | None:
    found: list[tuple[int, RowFailure]] = []
    for rows in _iterators(frame, plan):
        while (error := _next_error(rows)) is not None:
            failure = spark_failure(error)
            reason = classify(failure, node) if failure is not None else None
            number = counter.value() - 1
            if not isinstance(reason, RowFailure) or number <= (found[-1][0] if found else -1):
                return None
            found.append((number, reason))
    return found


def _next_error(rows: Any) -> Exception | None:
    """Compute rows up to the next one that fails; returns its error, None at the end.

    The call bypasses PySpark's conversion of errors, which asks Java some twenty questions about each.
    """
    from py4j.protocol import CALL_COMMAND_NAME, END_COMMAND_PART, Py4JJavaError, get_return_value

    method = rows.length
    client = method.gateway_client
    try:
        answer = client.send_command(f"{CALL_COMMAND_NAME}{method.command_header}{END_COMMAND_PART}")
        get_return_value(answer, client, method.target_id, method.name)
    except Py4JJavaError as error:
        failed: Exception = error
        return failed
    return None


def _row_counter(plan: Any) -> Any:
    """The metric that counts the rows of the only input; None if the plan has several, or other operators."""
    while True:
        if plan.getClass().getSimpleName() not in _ROW_BY_ROW:
            return None
        children = plan.children()
        if children.size() == 0:
            return plan.metrics().apply(_COUNTER)
        if children.size() > 1:
            return None
        plan = children.apply(0)
