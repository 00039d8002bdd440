"""Spark's errors, classified where they enter.

An error from the JVM is only a proxy, which is useless once the JVM has ended. So everything needed of it is read here,
immediately, and the proxy is not kept as a cause.
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
    Fenced,
    PermanentError,
    StreamlingError,
    TransientError,
)
from streamling.spec.mask import mask_text

_MARK = "<<streamling>>"
# The kinds of errors that the driver treats differently from permanent ones; Fenced is a TransientError.
_KINDS: dict[str, type[StreamlingError]] = {"fenced": Fenced, "transient": TransientError}

# Error conditions caused by a row whose values cannot be computed, and the reason codes of such rows. Other conditions
# of the class 22 of SQL states, data exceptions, are caused by a row too.
_ROW_CONDITIONS = {
    "CAST_INVALID_INPUT": "cast_error",
    "CAST_OVERFLOW": "cast_error",
    "DIVIDE_BY_ZERO": "arithmetic_error",
    "REMAINDER_BY_ZERO": "arithmetic_error",
    "ARITHMETIC_OVERFLOW": "arithmetic_error",
    "BINARY_ARITHMETIC_OVERFLOW": "arithmetic_error",
    "NUMERIC_VALUE_OUT_OF_RANGE": "arithmetic_error",
    "INVALID_ARRAY_INDEX": "function_error",
    "INVALID_REGEXP_REPLACE": "function_error",
    "INVALID_PARAMETER_VALUE": "function_error",
    "CANNOT_PARSE_TIMESTAMP": "function_error",
    "DATETIME_OVERFLOW": "function_error",
    "USER_RAISED_EXCEPTION": "function_error",
    "INTERVAL_ARITHMETIC_OVERFLOW": "arithmetic_error",
    "INTERVAL_DIVIDED_BY_ZERO": "arithmetic_error",
    "CONVERSION_INVALID_INPUT": "cast_error",
    "DUPLICATED_MAP_KEY": "function_error",
    "INVALID_FORMAT.MISMATCH_INPUT": "function_error",
}
_DATA_EXCEPTION = "22"

# Spark gives none of these a condition. It has retried the task on other executors before it reports them.
_LOST_PROCESSES = (
    "ExecutorLostFailure",
    "Python worker exited unexpectedly",
    "FetchFailed(",
    "has failed the maximum allowable number of times",  # a stage, each time because shuffled rows were missing
)

# How Spark's message begins if the Python of a worker is missing, or exits before it has answered.
_NO_PROGRAM, _NO_WORKER, _AFTER_WORKER = "Cannot run program", "Error from python worker:", "PYTHONPATH was:"


class ProcessLost(TransientError):
    """A process that computed rows was lost: a retry uses another one, unless the rows themselves end it."""


class RowFailure(PermanentError):
    """A row cannot be computed. Spark does not report which one."""

    reason = "function_error"
    """The reason code of the row."""


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """An error of Spark: its condition, if it has one, and its message."""

    condition: str
    message: str
    lost: str = ""
    """What Spark reports about a lost executor or Python worker, if that is the cause."""
    state: str = ""
    """The SQL state of the condition."""

    @property
    def result_too_large(self) -> bool:
        return "spark.driver.maxResultSize" in self.message  # Spark has no condition for this error


def spark_failure(error: BaseException) -> SparkFailure | None:
    """The failure that Spark reports in `error`; None if the JVM did not answer."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        if isinstance(error, Py4JJavaError):
            return _java_failure(error.java_exception)
        if isinstance(error, PySparkException):
            text = str(error)
            return SparkFailure(error.getCondition() or "", text, _loss(text), error.getSqlState() or "")
    except (Py4JError, OSError, EOFError):
        pass
    return None


@contextmanager
def spark_errors(node: str | None) -> Iterator[None]:
    """Turn what Spark raises while computing `node` into our errors; None: while it starts."""
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
        raise classify(failure, node) from None


def _java_failure(exception: Any) -> SparkFailure:
    """The innermost exception of a chain that has a condition, else the innermost."""
    failure = SparkFailure("", str(exception.toString()))
    lost = ""
    while exception is not None:
        condition, message = _condition(exception), exception.getMessage()
        if out_of_memory(str(exception.getClass().getName())):
            return SparkFailure(condition, str(exception.toString()))  # the message alone lacks the kind of error
        # An exception without a message, as when a worker's connection ends, explains nothing: an outer one does.
        explained = bool(failure.condition) or failure.message.startswith(_NO_PROGRAM)
        if message is not None and (condition or not explained):
            failure = SparkFailure(condition, str(message), state=_state(exception, condition))
        lost = lost or _loss(str(message))
        exception = exception.getCause()
    return replace(failure, lost=lost)


def _loss(message: str) -> str:
    """The part of a line that describes a lost process, without Spark's advice about its settings."""
    start = min((at for text in _LOST_PROCESSES if (at := message.find(text)) >= 0), default=None)
    return "" if start is None else message[start:].splitlines()[0].partition(". Consider ")[0].strip()


def _condition(exception: Any) -> str:
    from py4j.protocol import Py4JError

    try:
        return str(exception.getCondition() or "")
    except Py4JError:
        return ""  # not one of Spark's own exceptions


def _state(exception: Any, condition: str) -> str:
    """The SQL state, if it is needed to know what to do: every question to Java takes time."""
    return str(exception.getSqlState() or "") if condition and _row_reason(condition) is None else ""


def _row_reason(condition: str) -> str | None:
    return next((code for name, code in _ROW_CONDITIONS.items() if condition.startswith(name)), None)


@contextmanager
def errors_to_driver() -> Iterator[None]:
    """In an executor: encode an error of ours in a message, because the driver gets only the text of an exception."""
    try:
        yield
    except StreamlingError as error:
        kind = next((name for name, class_ in _KINDS.items() if isinstance(error, class_)), "permanent")
        fields = {"kind": kind, "code": error.code, "message": error.message, "node": error.node, "hint": error.hint}
        raise RuntimeError(f"{_MARK}{json.dumps(fields)}{_MARK}") from error


def _decode_error(message: str) -> StreamlingError | None:
    """The error of ours that an executor has encoded in a message, if any."""
    parts = message.split(_MARK)
    if len(parts) < 3:
        return None
    fields = json.loads(parts[1])
    kind = _KINDS.get(fields["kind"], PermanentError)
    return kind(CONDITIONS[fields["code"]], fields["message"], node=fields["node"], hint=fields["hint"])


def classify(failure: SparkFailure, node: str | None) -> StreamlingError:
    """The error of ours for a failure of Spark."""
    own = _decode_error(failure.message)
    if own is not None:
        return own
    reason = _row_reason(failure.condition)
    if reason is None and failure.state.startswith(_DATA_EXCEPTION):
        reason = RowFailure.reason
    if reason is not None:
        row_failure = RowFailure(
            DATA_ERROR,
            f"a row cannot be computed: {_message_of(failure.message)}",
            node=node,
            hint="guard the expression, for instance with TRY_CAST, NULLIF or CASE, or set on_error of the node",
        )
        row_failure.reason = reason
        return row_failure
    memory = out_of_memory(failure.message)
    if memory is not None and failure.condition != "PYTHON_EXCEPTION":
        return PermanentError(SPARK_FAILED, f"Java ran out of memory: {memory}", node=node, hint=memory_hint())
    if failure.lost:
        return ProcessLost(
            SPARK_FAILED,
            f"Spark lost an executor or a Python worker: {failure.lost}",
            node=node,
            hint="the system may have killed it because memory ran out: give it more memory, or lower epoch.bytes",
        )
    if failure.message.strip().startswith((_NO_PROGRAM, _NO_WORKER)):
        return PermanentError(
            SPARK_FAILED,
            f"a Python worker cannot start: {_message_of(failure.message.partition(_AFTER_WORKER)[0])}",
            node=node,
            hint="on the hosts of the executors, `spark.pyspark.python` or else PYSPARK_PYTHON must name a Python of "
            "the driver's version with the packages streamling depends on",
        )
    return PermanentError(SPARK_FAILED, _message_of(failure.message), node=node)


def _message_of(message: str) -> str:
    """The message without secrets and without a stack trace.

    It is the first line, or the last error line of a Python worker's traceback.
    """
    lines = [line.strip() for line in mask_text(message).strip().splitlines() if line.strip()]
    if not lines:
        return "no message"
    if any("Traceback (most recent call last)" in line for line in lines):
        inner = [line for line in lines if not line.startswith(("at ", "File ", "^", "~"))]
        return next((line for line in reversed(inner) if "Error" in line or "Exception" in line), lines[0])
    return lines[0]
