"""Spark's errors, classified where they enter.

An error that comes from the JVM is only a proxy, which has nothing to say once the JVM is gone; so all that is wanted
of it is asked for here, at once, and the proxy is not kept as a cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamling.engine.java_log import memory_hint, out_of_memory
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
_WORKER_DIED = "Python worker exited unexpectedly"

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


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """What Spark said: its condition, if it gave one, and its words."""

    condition: str
    message: str

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
            return SparkFailure(error.getCondition() or "", str(error))
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
    while exception is not None:
        condition = _condition(exception)
        message = exception.getMessage()
        if out_of_memory(str(exception.getClass().getName())):
            return SparkFailure(condition, str(exception.toString()))  # its message does not say what it is
        # One without words, as when a worker's connection ends, explains nothing: what is around it does.
        if message is not None and (condition or not said.condition):
            said = SparkFailure(condition, str(message))
            if said.message.startswith(_WORKER_DIED):
                return said  # below it is only how its connection ended
        exception = exception.getCause()
    return said


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
    if failure.message.startswith(_WORKER_DIED):
        # Another attempt gets another worker.
        return TransientError(
            SPARK_FAILED,
            "a Python worker ended unexpectedly",
            node=node,
            hint="the system may have killed it for want of memory: leave more memory to it, or lower epoch.bytes",
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
