"""Spark's errors, classified where they enter.

An error that comes from the JVM is only a proxy, which has nothing to say once the JVM is gone; so all that is wanted
of it is asked for here, at once, and the proxy is not kept as a cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from streamling.engine.process.java_log import memory_hint, out_of_memory
from streamling.errors import (
    CONDITIONS,
    DATA_ERROR,
    JVM_FAILED,
    SPARK_FAILED,
    PermanentError,
    StreamlingError,
    TransientError,
)

_MARK = "<<streamling>>"

# Error conditions that belong to a row: its values cannot be computed.
_ROW_CONDITIONS = (
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "INVALID_ARRAY_INDEX",
    "INVALID_REGEXP_REPLACE",
    "INVALID_PARAMETER_VALUE",
    "CANNOT_PARSE_TIMESTAMP",
    "DATETIME_OVERFLOW",
    "USER_RAISED_EXCEPTION",
)

# Spark gives none of these a condition. It has tried the task on other executors before it says so.
_LOST_PROCESSES = (
    "ExecutorLostFailure",
    "Python worker exited unexpectedly",
    "FetchFailed(",
    "has failed the maximum allowable number of times",  # a stage, each time for want of shuffled rows
)

# How Spark begins when the Python of a worker is not there, or ends before it has answered.
_NO_PROGRAM, _NO_WORKER, _AFTER_WORKER = "Cannot run program", "Error from python worker:", "PYTHONPATH was:"


class ProcessLost(TransientError):
    """A process that computed rows is gone: another attempt gets another one, unless the rows themselves end it."""


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """What Spark said: its condition, if it gave one, and its words."""

    condition: str
    message: str
    lost: str = ""
    """What Spark says about an executor or a Python worker that is gone, if that is why."""

    @property
    def result_too_large(self) -> bool:
        return "spark.driver.maxResultSize" in self.message  # Spark gives this refusal no condition of its own


def spark_failure(error: BaseException) -> SparkFailure | None:
    """What Spark said in `error`; None if the JVM did not answer."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        if isinstance(error, Py4JJavaError):
            return _of_java(error.java_exception)
        if isinstance(error, PySparkException):
            text = str(error)
            return SparkFailure(error.getCondition() or "", text, _loss(text))
    except (Py4JError, OSError, EOFError):
        pass
    return None


@contextmanager
def spark_errors(node: str | None) -> Iterator[None]:
    """Turn what Spark raises while computing `node` into our errors; None = while it starts."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except StreamlingError:
        raise
    except (PySparkException, Py4JError, OSError, EOFError) as error:
        failure = spark_failure(error)
        if failure is None:
            raise PermanentError(JVM_FAILED, "lost the connection to Spark", node=node) from None
        raise _classified(failure, node) from None


def _of_java(exception: Any) -> SparkFailure:
    """The innermost exception of a chain that has a condition, else the innermost."""
    said = SparkFailure("", str(exception.toString()))
    lost = ""
    while exception is not None:
        condition, message = _condition(exception), exception.getMessage()
        if out_of_memory(str(exception.getClass().getName())):
            return SparkFailure(condition, str(exception.toString()))  # its message does not say what it is
        # One without words, as when a worker's connection ends, explains nothing: what is around it does.
        explained = bool(said.condition) or said.message.startswith(_NO_PROGRAM)
        if message is not None and (condition or not explained):
            said = SparkFailure(condition, str(message))
        lost = lost or _loss(str(message))
        exception = exception.getCause()
    return replace(said, lost=lost)


def _loss(message: str) -> str:
    """From the words about a lost process to the end of their line, without Spark's advice about its settings."""
    found = min((at for text in _LOST_PROCESSES if (at := message.find(text)) >= 0), default=None)
    return "" if found is None else message[found:].splitlines()[0].partition(". Consider ")[0].strip()


def _condition(exception: Any) -> str:
    from py4j.protocol import Py4JError

    try:
        return str(exception.getCondition() or "")
    except Py4JError:
        return ""  # not one of Spark's own exceptions


@contextmanager
def crossing() -> Iterator[None]:
    """In an executor: let an error of ours cross to the driver, which gets nothing of it but text."""
    try:
        yield
    except StreamlingError as error:
        kind = "transient" if isinstance(error, TransientError) else "permanent"
        fields = {"kind": kind, "code": error.code, "message": error.message, "node": error.node, "hint": error.hint}
        raise RuntimeError(f"{_MARK}{json.dumps(fields)}{_MARK}") from error


def _crossed(message: str) -> StreamlingError | None:
    """The error of ours that an executor sent, if it sent one."""
    parts = message.split(_MARK)
    if len(parts) < 3:
        return None
    fields = json.loads(parts[1])
    kind = TransientError if fields["kind"] == "transient" else PermanentError
    return kind(CONDITIONS[fields["code"]], fields["message"], node=fields["node"], hint=fields["hint"])


def _classified(failure: SparkFailure, node: str | None) -> StreamlingError:
    ours = _crossed(failure.message)
    if ours is not None:
        return ours
    if failure.condition.startswith(_ROW_CONDITIONS):
        return PermanentError(
            DATA_ERROR,
            f"a row cannot be computed: {_told(failure.message)}",
            node=node,
            hint="guard the expression, for instance with TRY_CAST, NULLIF or CASE",
        )
    memory = out_of_memory(failure.message)
    if memory is not None and failure.condition != "PYTHON_EXCEPTION":
        return PermanentError(SPARK_FAILED, f"Java ran out of memory: {memory}", node=node, hint=memory_hint())
    if failure.lost:
        return ProcessLost(
            SPARK_FAILED,
            f"Spark lost an executor or a Python worker: {failure.lost}",
            node=node,
            hint="the system may have killed it for want of memory: leave more memory to it, or lower epoch.bytes",
        )
    if failure.message.strip().startswith((_NO_PROGRAM, _NO_WORKER)):
        return PermanentError(
            SPARK_FAILED,
            f"a Python worker cannot start: {_told(failure.message.partition(_AFTER_WORKER)[0])}",
            node=node,
            hint="where tasks run, `spark.pyspark.python` or else PYSPARK_PYTHON must name a Python of this version "
            "with the packages streamling depends on",
        )
    return PermanentError(SPARK_FAILED, _told(failure.message), node=node)


def _told(message: str) -> str:
    """What happened without a stack: the first line, or the last of a Python worker's traceback."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    if not lines:
        return "no message"
    if any("Traceback (most recent call last)" in line for line in lines):
        inner = [line for line in lines if not line.startswith(("at ", "File ", "^", "~"))]
        return next((line for line in reversed(inner) if "Error" in line or "Exception" in line), lines[0])
    return lines[0]
