"""Deletes by key, as statements: the values of the keys as literals of ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamling.formats.clickhouse_syntax import quote_name
from streamling.formats.clickhouse_targets import Target
from streamling.sinks.clickhouse.blocks import EncodedRows
from streamling.sinks.clickhouse.tables import PairedColumn, TableName

if TYPE_CHECKING:
    from streamling.sinks.clickhouse.blocks import Indexes

_KEYS = 1000
_WIDE = ("Int128", "UInt128", "Int256", "UInt256")
_ESCAPED = {ord("\\"): "\\\\", ord("'"): "\\'"}


def delete_statements(
    table: TableName, key: Sequence[PairedColumn], encoded: EncodedRows, indexes: Indexes
) -> Iterator[str]:
    """Statements that delete the keys of these rows."""
    names = ", ".join(quote_name(column.name) for column in key)
    for start in range(0, len(indexes), _KEYS):
        chosen = pa.array(indexes[start : start + _KEYS])
        columns = [_literals(encoded.columns[column.name].take(chosen), column.target) for column in key]
        if len(columns) == 1:
            keys = ", ".join(columns[0])
        else:
            keys = ", ".join(f"({', '.join(parts)})" for parts in zip(*columns, strict=True))
        yield f"ALTER TABLE {table.sql} DELETE WHERE {names if len(key) == 1 else f'({names})'} IN ({keys})"


def marked(statement: str, mark: str) -> str:
    """The same delete, which can be found by its mark among those that the server executes."""
    return f"{statement} AND '{mark}' != ''"


def _literals(values: pa.Array, target: Target) -> list[str]:
    if pa.types.is_timestamp(values.type):  # as numbers: datetime has no nanoseconds
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[values.type.unit]
        return [
            f"toDateTime64('{_decimal_text(v, digits)}', {digits}, 'UTC')" for v in values.cast(pa.int64()).to_pylist()
        ]
    return [literal(value, target) for value in values.to_pylist()]


def _decimal_text(ticks: int, digits: int) -> str:
    """Seconds since 1970 with a fraction, as a date and a time."""
    from datetime import UTC, datetime

    seconds, rest = divmod(ticks, 10**digits)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{rest:0{digits}d}" if digits else "")


def literal(value: Any, target: Target) -> str:
    """A value of an encoded column, other than a timestamp."""
    name = target.name
    if name in _WIDE:
        return f"to{name}('{int.from_bytes(value, 'little', signed=name.startswith('Int'))}')"
    if name == "DateTime":
        return f"toDateTime({value})"
    if name in ("Date", "Date32"):
        return f"to{name}('{value}')"
    if isinstance(value, Decimal):
        digits = target.numbers[0]
        bits = next(bits for bits, most in ((32, 9), (64, 18), (128, 38), (256, 76)) if digits <= most)
        return f"toDecimal{bits}('{value:f}', {target.numbers[1]})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if isinstance(value, str):
        return f"'{value.translate(_ESCAPED)}'"
    return repr(value)
