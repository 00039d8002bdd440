"""Columns as Python values, for functions that are called row by row.

Whole columns are converted at once: `to_pylist` takes microseconds for a date or a time, numpy a tenth of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from streamling.plan.types import DataType, Schema

# Python refuses to convert longer texts to integers.
_MOST_INTEGER_DIGITS = 4300

Columns = list[list[Any]]
Unpack = Callable[[pa.Array], list[Any]]


class _OutOfRange:
    """Stands for a date or a time that Python cannot hold: its years are 1 to 9999."""


OUT_OF_RANGE = _OutOfRange()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Notice:
    """Whether a value was out of range; the values are searched only then."""

    out_of_range: bool = False


class RowMaker:
    """Makes a dict of every row of a batch with this schema."""

    def __init__(self, schema: Schema) -> None:
        self._notice = Notice()
        self._unpack = [unpacker(field.type, self._notice) for field in schema]
        self._names = schema.names
        self._assemble = dict_maker(schema.names)

    def rows(self, batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], dict[int, str]]:
        """The rows, and those among them that have a value Python cannot hold, with what is wrong."""
        self._notice.out_of_range = False
        columns = [unpack(column) for unpack, column in zip(self._unpack, batch.columns, strict=True)]
        unfit: dict[int, str] = {}
        for name, values in zip(self._names, columns, strict=True) if self._notice.out_of_range else ():
            for index in [i for i, value in enumerate(values) if _is_unfit(value)]:
                unfit[index] = f"column '{name}' has a date outside of the years 1 to 9999, which Python does not have"
        return self._assemble(*columns), unfit


def dict_maker(names: Sequence[str]) -> Callable[..., list[dict[str, Any]]]:
    """A function that makes a dict of each row of the columns it gets.

    Its code has the names as constants: a third of the time of `dict(zip(names, row))`.
    """
    columns = ", ".join(f"c{number}" for number in range(len(names)))
    values = ", ".join(f"v{number}" for number in range(len(names)))
    items = ", ".join(f"{name!r}: v{number}" for number, name in enumerate(names))
    maker: Callable[..., list[dict[str, Any]]] = eval(
        f"lambda {columns}: [{{{items}}} for ({values},) in zip({columns})]"
    )
    return maker


def unpacker(type_: DataType, notice: Notice) -> Unpack:
    """The function from a column of the engine to Python values; null is None."""
    match type_.kind:
        case "uint64":
            return lambda column: column.cast(pa.uint64()).to_pylist()
        case "decimal_arb" if not type_.scale and (type_.precision or 0) <= _MOST_INTEGER_DIGITS:
            return _numbers(int)
        case "decimal_arb":
            return _numbers(Decimal)
        case "decimal":
            return _numbers(Decimal) if type_.wide else _by_numpy
        case "timestamp":
            return _moments(type_.zone, notice)
        case "date32" | "date64":
            return _dates(notice)
        case "time32" | "time64" | "duration":
            return _by_numpy
        case "list" if type_.item:
            return _lists(unpacker(type_.item, notice))
        case "map" if type_.item and type_.key:
            return _maps(type_.key, unpacker(type_.key, notice), unpacker(type_.item, notice))
        case "struct":
            return _structs(type_, notice)
    return lambda column: column.to_pylist()


def _is_unfit(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_unfit, value))
    if isinstance(value, dict):
        return any(map(_is_unfit, value)) or any(map(_is_unfit, value.values()))
    return value is OUT_OF_RANGE


def _numbers(make: Callable[[str], Any]) -> Unpack:
    return lambda column: [None if text is None else make(text) for text in column.to_pylist()]


def _by_numpy(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _dates(notice: Notice) -> Unpack:
    def dates(column: pa.Array) -> list[Any]:
        values = _by_numpy(column)
        if int not in set(map(type, values)):  # numpy gives an integer for what Python's type cannot hold
            return values
        notice.out_of_range = True
        return [OUT_OF_RANGE if value.__class__ is int else value for value in values]

    return dates


def _moments(zone: str | None, notice: Notice) -> Unpack:
    dates = _dates(notice)
    if zone is None:
        return dates
    own = _zone(zone)

    def aware(value: Any) -> Any:
        if value.__class__ is not datetime:
            return value
        instant = value.replace(tzinfo=UTC)
        try:
            return instant if own is UTC else instant.astimezone(own)
        except OverflowError:
            notice.out_of_range = True
            return OUT_OF_RANGE

    def moments(column: pa.Array) -> list[Any]:
        if own is UTC and not column.null_count:
            try:
                return list(map(_EPOCH.__add__, _by_numpy(column.view(pa.duration("us")))))  # an eighth of the time
            except OverflowError:
                pass
        return list(map(aware, dates(column)))

    return moments


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z", "ETC/UTC", "+00:00"):
        return UTC
    if name[:1] in "+-":
        zone = datetime.strptime(name, "%z").tzinfo
        return zone or UTC
    return ZoneInfo(name)


def _cuts(column: pa.Array) -> tuple[list[int], int, int]:
    """Where the items of each value begin and end, relative to the first; the first, and how many there are."""
    offsets = column.offsets.to_numpy()
    first = int(offsets[0])
    return (offsets - first).tolist(), first, int(offsets[-1]) - first


def _lists(unpack: Unpack) -> Unpack:
    def lists(column: pa.Array) -> list[Any]:
        cuts, first, count = _cuts(column)
        items = unpack(column.values.slice(first, count))
        values: list[Any] = [items[begin:end] for begin, end in pairwise(cuts)]
        return _with_nulls(values, column)

    return lists


def _maps(key_type: DataType, unpack_key: Unpack, unpack_item: Unpack) -> Unpack:
    hashable = key_type.kind not in ("list", "map", "struct")

    def maps(column: pa.Array) -> list[Any]:
        cuts, first, count = _cuts(column)
        keys = unpack_key(column.keys.slice(first, count))
        pairs = list(zip(keys, unpack_item(column.items.slice(first, count)), strict=True))
        make: Callable[[Any], Any] = dict if hashable else list
        return _with_nulls([make(pairs[begin:end]) for begin, end in pairwise(cuts)], column)

    return maps


def _structs(type_: DataType, notice: Notice) -> Unpack:
    if not type_.fields:
        return lambda column: column.to_pylist()
    unpackers = [unpacker(field.type, notice) for field in type_.fields]
    assemble = dict_maker([field.name for field in type_.fields])

    def structs(column: pa.Array) -> list[Any]:
        members = [unpack(member) for unpack, member in zip(unpackers, column.flatten(), strict=True)]
        return _with_nulls(assemble(*members), column)

    return structs


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if not column.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]
