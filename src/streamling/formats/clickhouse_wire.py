"""The columns of a ClickHouse table on their way to us, as Arrow: what the server casts, and what is cast here.

The server casts types that Arrow has no counterpart for, at any depth, so that no value depends on the version of the
server: times to microseconds in UTC, days to 32 bits, and numbers of more than 64 bits, enums, UUIDs and addresses to
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from streamling.formats.clickhouse_syntax import NAME, quote_name, split_list
from streamling.formats.clickhouse_types import column_type
from streamling.plan.types import DataType, Field

if TYPE_CHECKING:
    import pyarrow as pa

_TYPE = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:\((.*)\))?", re.DOTALL)
_MEMBER = re.compile(rf"({NAME})\s+(.+)", re.DOTALL)
_AS_TEXT = frozenset(
    {"Int128", "UInt128", "Int256", "UInt256", "UUID", "IPv4", "IPv6", "Enum", "Enum8", "Enum16"},
)
_MOMENT = "DateTime64(6, 'UTC')"


def wire_expression(column: str, type_: str) -> str:
    """The SQL with which a column of this ClickHouse type is read."""
    name = quote_name(column)
    logical, _ = column_type(type_, column)
    if logical.kind == "decimal" and logical.wide and "Decimal" in type_:
        return f"toDecimalString({name}, {logical.scale})"
    wire = _wire_type(type_)
    return name if wire == type_ else f"CAST({name} AS {wire})"


def _wire_type(text: str) -> str:
    match = _TYPE.fullmatch(text)
    if match is None:
        return text
    name, inner = match[1], split_list(match[2] or "")
    match name, inner:
        case (("Nullable" | "Array"), [one]):
            return f"{name}({_wire_type(one)})"
        case ("LowCardinality", [one]) | ("SimpleAggregateFunction", [_, one]):
            return _wire_type(one)
        case "Map", [key, value]:
            return f"Map({_wire_type(key)}, {_wire_type(value)})"
        case "Tuple", [_, *_]:
            return f"Tuple({', '.join(_members(inner))})"
        case "Nested", [_, *_]:
            return f"Array(Tuple({', '.join(_members(inner))}))"
        case (("DateTime" | "DateTime64"), _):
            return _MOMENT
        case "Date", []:
            return "Date32"
    return "String" if name in _AS_TEXT else text


def _members(inner: Sequence[str]) -> Iterator[str]:
    for text in inner:
        named = _MEMBER.fullmatch(text)
        yield f"{named[1]} {_wire_type(named[2])}" if named else _wire_type(text)


def unwired(column: pa.Array, field: Field) -> pa.Array:
    """A column as it arrived, cast to the type that the pipeline knows. Raises ArrowInvalid if a text is not UTF-8."""
    import pyarrow as pa

    from streamling.formats.arrow import arrow_type, cast_array

    target = arrow_type(field.type)
    if _has_text(target):
        column.validate(full=True)  # the server does not check it
    if _is_wide_decimal(field.type):
        return _plain_zeros(column)
    if column.type == target:
        return column
    try:
        return column.cast(target)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return cast_array(column, target)


def _is_wide_decimal(type_: DataType) -> bool:
    return type_.kind == "decimal" and type_.wide and bool(type_.scale)


def _plain_zeros(column: pa.Array) -> pa.Array:
    """Canonical texts: zero has no decimal places."""
    import pyarrow.compute as pc

    return pc.if_else(pc.match_substring_regex(column, r"^-?0+(\.0+)?$"), "0", column)


def _has_text(type_: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_string(type_):
        return True
    return any(_has_text(type_.field(index).type) for index in range(type_.num_fields))
