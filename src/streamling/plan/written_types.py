"""Types as authors write them in a pipeline file: `int64`, `decimal(20,4)`, `Timestamp(Millisecond, "UTC")`.

Used wherever a node declares columns. Only flat types can be declared.
"""

from __future__ import annotations

import re

from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DATE64,
    DECIMAL256_DIGITS,
    DURATION,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    NULL,
    SPARK_DIGITS,
    STRING,
    TIME32,
    TIME64,
    TIMESTAMP,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    decimal,
)
from streamling.spec.faults import nearest

_NAMED = {
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "uint8": UINT8,
    "uint16": UINT16,
    "uint32": UINT32,
    "uint64": UINT64,
    "float16": FLOAT16,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "string": STRING,
    "utf8": STRING,
    "binary": BINARY,
    "boolean": BOOLEAN,
    "date32": DATE,
    "date64": DATE64,
    "timestamp": TIMESTAMP,
    "time32": TIME32,
    "time64": TIME64,
    "duration": DURATION,
    "interval": INTERVAL,
    "null": NULL,
}
# Arrow's names for other layouts of the same values.
_LAYOUTS = {"largeutf8": STRING, "utf8view": STRING, "largebinary": BINARY, "binaryview": BINARY}
_DECIMALS = {"decimal": SPARK_DIGITS, "decimal128": SPARK_DIGITS, "decimal256": DECIMAL256_DIGITS}
_UNITS = {"second": "s", "millisecond": "ms", "microsecond": None, "nanosecond": "ns"}
_INTERVALS = ("yearmonth", "daytime", "monthdaynano")
_PARAMETERS = re.compile(r"([A-Za-z0-9_]+)\s*(?:\((.*)\))?", re.DOTALL)

# The names of types in other systems.
_OTHER_SYSTEMS = {
    "tinyint": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "number": "float64",
    "real": "float32",
    "float": "float32",
    "double": "float64",
    "doubleprecision": "float64",
    "numeric": "decimal(p,s)",
    "bool": "boolean",
    "text": "string",
    "str": "string",
    "varchar": "string",
    "char": "string",
    "uuid": "string",
    "json": "string",
    "jsonb": "string",
    "bytes": "binary",
    "bytea": "binary",
    "blob": "binary",
    "date": "date32",
    "time": "time64",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
}

NAMES = (*_NAMED, "decimal(p,s)", "decimal128(p,s)", "decimal256(p,s)")


class UnknownType(ValueError):
    """The text is not the name of a type; the message has the reason and the accepted names, the hint a suggestion."""

    hint: str | None = None


def declared_type(text: str) -> DataType:
    """The type with this name, ignoring case. Raises UnknownType."""
    if "(" in text and ")" not in text:
        raise UnknownType(f"'{text}' is cut off: between braces a comma ends the value; put the type in quotes")
    parts = _PARAMETERS.fullmatch(text.strip())
    if parts is None:
        raise _unknown(text)
    name, inner = parts[1].lower(), parts[2]
    if name in _DECIMALS:
        return _decimal(text, inner, most=_DECIMALS[name])
    if inner is not None:
        return _with_unit(text, name, [part.strip() for part in inner.split(",")])
    type_ = _NAMED.get(name) or _LAYOUTS.get(name)
    if type_ is None:
        raise _unknown(text)
    return type_


def _decimal(text: str, inner: str | None, *, most: int) -> DataType:
    if inner is None:
        return decimal(38, 9)
    parts = [part.strip() for part in inner.split(",")]
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UnknownType(f"'{text}' is malformed: write decimal(precision, scale) with whole numbers")
    precision, scale = int(parts[0]), int(parts[1]) if len(parts) == 2 else 0
    if not 1 <= precision <= most:
        raise UnknownType(f"'{text}': the precision must be from 1 to {most}")
    if scale > precision:
        raise UnknownType(f"'{text}': the scale must not be greater than the precision")
    return decimal(precision, scale)


def _with_unit(text: str, name: str, parts: list[str]) -> DataType:
    """A temporal type in Arrow's spelling. Only timestamps keep their unit: Spark carries all in microseconds."""
    if name == "interval" and len(parts) == 1 and parts[0].lower() in _INTERVALS:
        return INTERVAL
    unit = parts[0].lower()
    if unit not in _UNITS:
        raise _unknown(text)
    if name == "timestamp" and len(parts) <= 2:
        zone = parts[1].strip("\"'") if len(parts) == 2 else "None"
        if zone.startswith("Some(") and zone.endswith(")"):
            zone = zone[5:-1].strip("\"'")
        return DataType("timestamp", unit=_UNITS[unit], zone=None if zone.lower() == "none" else zone or None)
    if len(parts) == 1 and name in ("time32", "time64", "duration"):
        coarse = unit in ("second", "millisecond")
        if name == "duration" or coarse == (name == "time32"):
            return _NAMED[name]
    raise _unknown(text)


def _unknown(text: str) -> UnknownType:
    error = UnknownType(f"unsupported data type '{text}'; accepted: {', '.join(NAMES)}")
    if re.match(r"(array|list|struct|map)\b", text.strip().lower()) or text.endswith("[]"):
        error.hint = "only flat types can be declared"
        return error
    word = re.sub(r"\(.*|[\W_]", "", text.lower())
    suggestion = nearest(word, (*_NAMED, *_OTHER_SYSTEMS))
    if suggestion is not None:
        error.hint = f"did you mean '{_OTHER_SYSTEMS.get(suggestion, suggestion)}'?"
    return error
