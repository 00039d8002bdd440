"""Spark's errors, classified where they enter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamling.errors import (
    DATA_ERROR,
    JVM_FAILED,
    SPARK_FAILED,
    PermanentError,
    StreamlingError,
)

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


@contextmanager
def spark_errors(node: str) -> Iterator[None]:
    """Turn what Spark raises while computing `node` into our errors."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except StreamlingError:
        raise
    except PySparkException as error:
        raise _classified(error, node) from error
    except (Py4JError, OSError, EOFError) as error:
        raise PermanentError(
            JVM_FAILED, f"lost the connection to Spark: {_first_line(error)}", node=node, cause=error
        ) from error


def _classified(error: Any, node: str) -> StreamlingError:
    condition = error.getCondition() or ""
    if condition.startswith(_ROW_CONDITIONS):
        return PermanentError(
            DATA_ERROR,
            f"a row cannot be computed: {_first_line(error)}",
            node=node,
            hint="guard the expression, for instance with TRY_CAST, NULLIF or CASE",
        )
    return PermanentError(SPARK_FAILED, _first_line(error), node=node)


def _first_line(error: BaseException) -> str:
    """What happened without Java's stack: the first line, or the last of a Python worker's traceback."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if any("Traceback (most recent call last)" in line for line in lines):
        inner = [line for line in lines if not line.startswith(("at ", "File ", "^", "~"))]
        return next((line for line in reversed(inner) if "Error" in line or "Exception" in line), lines[0])
    return lines[0]
