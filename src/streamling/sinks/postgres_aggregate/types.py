"""The Postgres types that a pipeline file may name, and their types in the pipeline."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DECIMAL256_DIGITS,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
    decimal_arb,
)
from streamling.spec.faults import invalid_value

_NAMED = {
    "text": STRING,
    "varchar": STRING,
    "char": STRING,
    "json": STRING,
    "jsonb": STRING,
    "smallint": INT16,
    "integer": INT32,
    "int": INT32,
    "bigint": INT64,
    "real": FLOAT32,
    "double precision": FLOAT64,
    "float": FLOAT64,
    "boolean": BOOLEAN,
    "bool": BOOLEAN,
    "bytea": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMP,
}
_NUMBERS = ("numeric", "decimal")
_WITH_LENGTH = ("varchar", "char", "timestamp", "timestamptz")
_TYPE = re.compile(r"([a-z]+(?: +[a-z]+)?) *(?:\((.*)\))?", re.DOTALL)
_WHOLE = re.compile(r"[0-9]{1,4}")
_MAX_DIGITS = 1000

NAMES = (*_NAMED, "numeric(p,s)", "decimal(p,s)")


def postgres_type(text: str) -> DataType:
    """The type of a column of this Postgres type. Raises ValueError, whose text continues a sentence about the type."""
    match = _TYPE.fullmatch(text.strip().lower())
    if match is None:
        raise _unknown(text)
    name = " ".join(match[1].split())
    parts = None if match[2] is None else [part.strip() for part in match[2].split(",")]
    if name in _NUMBERS:
        return _number(text, parts)
    type_ = _NAMED.get(name)
    if type_ is None:
        raise _unknown(text)
    if parts is not None and not (name in _WITH_LENGTH and len(parts) == 1 and _WHOLE.fullmatch(parts[0])):
        raise ValueError(f"is '{text}', whose parameters are not accepted")
    return type_


def _number(text: str, parts: list[str] | None) -> DataType:
    if parts is None:
        return decimal(38, 9)
    if len(parts) > 2 or not all(_WHOLE.fullmatch(part) for part in parts):
        raise ValueError(f"is '{text}'; write numeric(precision, scale) with whole numbers, the scale not negative")
    precision, scale = int(parts[0]), int(parts[1]) if len(parts) == 2 else 0
    if not 1 <= precision <= _MAX_DIGITS or scale > precision:
        raise ValueError(f"is '{text}'; the precision must be from 1 to {_MAX_DIGITS} and not less than the scale")
    return decimal(precision, scale) if precision <= DECIMAL256_DIGITS else decimal_arb(precision, scale)


def _unknown(text: str) -> ValueError:
    return ValueError(f"is '{text}', which is not a known Postgres type; accepted: {', '.join(NAMES)}")


def _check_type(text: str) -> str:
    try:
        postgres_type(text)
    except ValueError as error:
        raise invalid_value(str(error)) from error
    return text


PostgresType = Annotated[str, AfterValidator(_check_type)]
"""A Postgres type in an options model, kept as written."""
