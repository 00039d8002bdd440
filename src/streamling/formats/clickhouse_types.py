"""Maps our types to those of ClickHouse and back.

clickhouse_type   ours to ClickHouse's, for a table that we create
column_type       ClickHouse's to ours, for a table that exists
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.formats.clickhouse_syntax import NAME, plain_name, plain_text, quote_name, split_list
from streamling.plan.types import (
    BOOLEAN,
    DATE,
    DECIMAL256_DIGITS,
    FLOAT32,
    FLOAT64,
    I256,
    INT8,
    INT16,
    INT32,
    INT64,
    NULL,
    STRING,
    U256,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    Field,
    decimal,
    list_of,
    map_of,
    struct_of,
)

# Ours to ClickHouse's

NUMBERS = {
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Float32",
    "float32": "Float32",
    "float64": "Float64",
}
"""Kinds of numbers with the same values on both sides."""
_PLAIN = {
    **NUMBERS,
    "boolean": "UInt8",
    "string": "String",
    "date32": "Date",
    "date64": "DateTime",
    "time32": "DateTime",
    "time64": "DateTime64(9)",
    "duration": "Int64",
    "interval": "String",
}
_TIMESTAMPS = {"s": "DateTime", "ms": "DateTime64(3)", None: "DateTime64(6)", "ns": "DateTime64(9)"}
_INTEGERS = {"u256": "UInt256", "i256": "Int256"}
_INTEGER_DIGITS = 78
_NEVER_NULLABLE = frozenset({"list", "struct", "map", "null"})


class NoClickHouseType(ValueError):
    """A value of this type fits into no ClickHouse type other than String."""

    def __init__(self, type_: DataType) -> None:
        super().__init__(f"ClickHouse has no number as wide as {type_}")


def clickhouse_type(type_: DataType, *, nullable: bool) -> str:
    """The type of a column; items of lists and maps are not nullable. Raises NoClickHouseType."""
    if type_.kind == "null":
        return "Nullable(Nothing)"
    text = _bare(type_)
    return f"Nullable({text})" if nullable and type_.kind not in _NEVER_NULLABLE else text


def _bare(type_: DataType) -> str:
    match type_:
        case DataType(kind="decimal" | "decimal_arb"):
            return _number(type_)
        case DataType(kind="timestamp", unit=unit):
            return _TIMESTAMPS[unit]
        case DataType(kind="binary", length=length):
            return "String" if length is None else f"FixedString({length})"
        case DataType(kind="list", item=DataType() as item):
            return f"Array({clickhouse_type(item, nullable=False)})"
        case DataType(kind="map", key=DataType() as key, item=DataType() as item):
            return f"Map({clickhouse_type(key, nullable=False)}, {clickhouse_type(item, nullable=False)})"
        case DataType(kind="struct", fields=fields):
            parts = (f"{_member_name(f.name)} {clickhouse_type(f.type, nullable=f.nullable)}" for f in fields)
            return f"Tuple({', '.join(parts)})"
    return _PLAIN[type_.kind]


def _member_name(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else quote_name(name)


def _number(type_: DataType) -> str:
    precision, scale = type_.precision or 0, type_.scale or 0
    if type_.native is not None and scale == 0 and precision <= _INTEGER_DIGITS:
        return _INTEGERS[type_.native]
    if precision <= DECIMAL256_DIGITS:
        return f"Decimal({precision},{scale})"
    raise NoClickHouseType(type_)


# ClickHouse's to ours

# A type without a counterpart of its own is read as the text that ClickHouse prints.
_COLUMNS = {
    "Bool": BOOLEAN,
    "Int8": INT8,
    "Int16": INT16,
    "Int32": INT32,
    "Int64": INT64,
    "Int128": decimal(39, 0),
    "Int256": I256,
    "UInt8": UINT8,
    "UInt16": UINT16,
    "UInt32": UINT32,
    "UInt64": UINT64,
    "UInt128": decimal(39, 0),
    "UInt256": U256,
    "Float32": FLOAT32,
    "Float64": FLOAT64,
    "String": STRING,
    "UUID": STRING,
    "IPv4": STRING,
    "IPv6": STRING,
    "Date": DATE,
    "Date32": DATE,
    "DateTime": DataType("timestamp", unit="s"),
    "Nothing": NULL,
}
_DECIMAL_DIGITS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": DECIMAL256_DIGITS}
_FRACTIONS: tuple[str | None, ...] = ("s", *("ms",) * 3, *(None,) * 3, *("ns",) * 3)
# Deeper than real types are nested, and far below the recursion limit of Python.
_DEEPEST = 64
_LONGEST_TEXT = 200

_TYPE = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:\((.*)\))?", re.DOTALL)
_MEMBER = re.compile(rf"({NAME})\s+(.+)", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}")


def column_type(text: str, column: str) -> tuple[DataType, bool]:
    """The type of a column and whether it is nullable. Raises UserError SCHEMA_UNUSABLE."""
    try:
        return _column_type(text, 0)
    except ValueError as error:
        part = str(error)
        because = "" if part == text else f" because of {_shorten(part)}"
        message = f"the column '{column}' has the ClickHouse type {_shorten(text)}, which cannot be read{because}"
        raise UserError(SCHEMA_UNUSABLE, message) from error


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _column_type(text: str, depth: int) -> tuple[DataType, bool]:
    """Raises ValueError with the part that cannot be read."""
    type_ = _TYPE.fullmatch(text)
    if type_ is None or depth > _DEEPEST:
        raise ValueError(text)
    name, inner = type_[1], split_list(type_[2] or "")
    match name, inner:
        case "Nullable", [one]:
            return _column_type(one, depth + 1)[0], True
        case ("LowCardinality", [one]) | ("SimpleAggregateFunction", [_, one]):
            return _column_type(one, depth + 1)
        case "Array", [one]:
            return list_of(_column_type(one, depth + 1)[0]), False
        case "Map", [key, value]:
            return map_of(_column_type(value, depth + 1)[0], _column_type(key, depth + 1)[0]), False
        case "Tuple", [_, *_]:
            return struct_of(*_members(inner, depth)), False
        case "Nested", [_, *_]:
            return list_of(struct_of(*_members(inner, depth))), False
        case (("Enum8" | "Enum16"), [_, *_]):
            return STRING, False
        case _, []:
            plain = _COLUMNS.get(name)
        case _:
            plain = _with_parameters(name, inner)
    if plain is None:
        raise ValueError(text)
    return plain, plain is NULL


def _members(inner: Sequence[str], depth: int) -> Iterator[Field]:
    """Members without a name are named by their number, as ClickHouse does."""
    for number, text in enumerate(inner, 1):
        named = _MEMBER.fullmatch(text)
        type_, nullable = _column_type(named[2] if named else text, depth + 1)
        yield Field((plain_name(named[1]) if named else None) or str(number), type_, nullable)


def _with_parameters(name: str, inner: Sequence[str]) -> DataType | None:
    numbers = [int(part) for part in inner if _NUMBER.fullmatch(part)]
    texts = [text for part in inner if (text := plain_text(part))]
    if len(numbers) + len(texts) < len(inner):
        return None
    match name, numbers, texts:
        case "FixedString", [length], [] if length > 0:
            return DataType("binary", length=length)
        case "Decimal", [precision, scale], [] if 1 <= precision <= DECIMAL256_DIGITS and scale <= precision:
            return decimal(precision, scale)
        case _, [scale], [] if scale <= _DECIMAL_DIGITS.get(name, -1):
            return decimal(_DECIMAL_DIGITS[name], scale)
        case "DateTime", [], [zone]:
            return DataType("timestamp", unit="s", zone=zone)
        case "DateTime64", [digits], ([] | [_]) if digits < len(_FRACTIONS):
            return DataType("timestamp", unit=_FRACTIONS[digits], zone=texts[0] if texts else None)
    return None
