"""The names of flat types: `int64`, `decimal(20,4)`, and Arrow's `Timestamp(Millisecond, "UTC")`.

SQL casts accept them as they are; `written_types` adds SQL's names and nested types.
"""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

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

# An offset that Arrow and Spark accept as a zone.
_OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d")

NAMES = (*_NAMED, "decimal(p,s)", "decimal128(p,s)", "decimal256(p,s)")


class UnknownType(ValueError):
    """The text is not the name of a type; the message has the reason and the accepted names, the hint a suggestion."""

    hint: str | None = None


class UnknownName(UnknownType):
    """No type has such a name; other texts have the name of a type, and something else is wrong with them."""


def flat_type(text: str) -> DataType:
    """The type with this name, ignoring case. Raises UnknownType."""
    parts = _PARAMETERS.fullmatch(text.strip())
    if parts is None:
        raise unsupported(text)
    name, inner = parts[1].lower(), parts[2]
    if name in _DECIMALS:
        return sized_decimal(text, inner, most=_DECIMALS[name])
    if inner is not None:
        return _with_unit(text, name, [part.strip() for part in inner.split(",")])
    type_ = _NAMED.get(name) or _LAYOUTS.get(name)
    if type_ is None:
        raise unsupported(text)
    return type_


def sized_decimal(text: str, inner: str | None, *, most: int) -> DataType:
    """The decimal of the parameters `inner` of the type `text`."""
    if inner is None:
        return decimal(38, 9)
    parts = [part.strip() for part in inner.split(",")]
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UnknownType(f"'{text}' is malformed: write decimal(precision, scale) with whole numbers")
    precision, scale = int(parts[0]), int(parts[1]) if len(parts) == 2 else 0
    if not 1 <= precision <= most:
        error = UnknownType(f"'{text}': the precision must be from 1 to {most}")
        if most < precision <= DECIMAL256_DIGITS:
            error.hint = f"did you mean 'decimal256({precision},{scale})'?"
        raise error
    if scale > precision:
        raise UnknownType(f"'{text}': the scale must not be greater than the precision")
    return decimal(precision, scale)


def _with_unit(text: str, name: str, parts: list[str]) -> DataType:
    """A temporal type in Arrow's spelling. Only timestamps keep their unit: Spark carries all in microseconds."""
    if name == "interval" and len(parts) == 1 and parts[0].lower() in _INTERVALS:
        return INTERVAL
    unit = parts[0].lower()
    if unit not in _UNITS:
        raise unsupported(text)
    if name == "timestamp" and len(parts) <= 2:
        zone = parts[1].strip("\"'") if len(parts) == 2 else "None"
        if zone.startswith("Some(") and zone.endswith(")"):
            zone = zone[5:-1].strip("\"'")
        return DataType(
            "timestamp", unit=_UNITS[unit], zone=None if zone.lower() == "none" else checked_zone(text, zone)
        )
    if len(parts) == 1 and name in ("time32", "time64", "duration"):
        coarse = unit in ("second", "millisecond")
        if name == "duration" or coarse == (name == "time32"):
            return _NAMED[name]
    raise unsupported(text)


def checked_zone(text: str, zone: str) -> str:
    """The zone in the type `text`. Raises UnknownType if there is no such zone."""
    if zone != "UTC" and not _OFFSET.fullmatch(zone):
        try:
            ZoneInfo(zone)
        except (KeyError, OSError, ValueError):  # unknown, or a text that cannot be a file name
            message = f"'{text}': there is no time zone '{zone}'; write one such as UTC, Europe/Oslo or +01:00"
            raise UnknownType(message) from None
    return zone


def unsupported(text: str) -> UnknownName:
    return UnknownName(f"unsupported data type '{text}'; accepted: {', '.join(NAMES)}")
