"""Columns of the engine from Python values.

A column whose values all have the Python type of its type is built by Arrow at once. Otherwise it is cast value by
value (`casts.py`), so an odd value changes nothing for the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, chain
from types import NoneType
from typing import Any

import pyarrow as pa

from streamling.formats.arrow import arrow_type
from streamling.formats.exchange import exchange_type
from streamling.plan.types import DataType, Field
from streamling.transforms.python.casts import Unfit, cast_for, pairs_of, unfit

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NATIVE: dict[str, frozenset[type]] = {
    **dict.fromkeys(_INTEGERS, frozenset({int, NoneType})),
    "boolean": frozenset({bool, NoneType}),
    "string": frozenset({str, NoneType}),
    "interval": frozenset({str, NoneType}),
    "binary": frozenset({bytes, NoneType}),
    "float16": frozenset({float, NoneType}),
    "float32": frozenset({float, NoneType}),
    "float64": frozenset({float, NoneType}),
    "decimal": frozenset({Decimal, NoneType}),
    "date32": frozenset({date, NoneType}),
    "date64": frozenset({date, NoneType}),
    "timestamp": frozenset({datetime, NoneType}),
    "time32": frozenset({time, NoneType}),
    "time64": frozenset({time, NoneType}),
    "duration": frozenset({timedelta, NoneType}),
}
# Arrow raises any of these for a value that does not fit its type.
_REFUSALS = (pa.ArrowException, OverflowError, ValueError, TypeError)


@dataclass(slots=True)
class Casting:
    """What happened to the values of a column."""

    faults: dict[int, str] = field(default_factory=dict)
    """By the index of the value: why it does not fit."""
    nulled: int = 0
    """Values that became null because the type cannot hold them."""


Build = Callable[[Sequence[Any], Casting], pa.Array]


def builder(type_: DataType) -> Build:
    match type_.kind:
        case "list" if type_.item:
            return _lists(type_, builder(type_.item))
        case "map" if type_.item and type_.key:
            return _maps(type_, builder(type_.key), builder(type_.item))
        case "struct":
            return _structs(type_.fields, arrow_type(type_))
    return _scalars(type_)


def _scalars(type_: DataType) -> Build:
    cast, target = cast_for(type_), arrow_type(type_)
    # Wide numbers are text for the engine: they are always cast.
    native = None if type_.wide else _NATIVE.get(type_.kind)
    # Types with a range or a length of their own, which Arrow checks.
    exact = exchange_type(type_) if type_.kind.startswith("uint") or type_.length is not None else target

    def build(values: Sequence[Any], casting: Casting) -> pa.Array:
        if native is not None and native.issuperset(map(type, values)):
            try:
                return pa.array(values, exact).cast(target)
            except _REFUSALS:
                pass
        return pa.array(_cast_each(values, cast, casting), exact).cast(target)

    return build


def _cast_each(values: Iterable[Any], cast: Callable[[Any], Any], casting: Casting) -> list[Any]:
    made: list[Any] = []
    for index, value in enumerate(values):
        result = None
        if value is not None:
            try:
                result = cast(value)
                casting.nulled += result is None
            except Unfit as error:
                casting.faults[index] = str(error)
            except Exception:  # an object whose own methods fail
                casting.faults[index] = str(unfit(value, "a value that can be cast"))
        made.append(result)
    return made


def _lists(type_: DataType, build_items: Build) -> Build:
    target = arrow_type(type_)

    def items_of(value: Any) -> Sequence[Any]:
        if isinstance(value, list | tuple):
            return value
        raise unfit(value, "a list")

    def build(values: Sequence[Any], casting: Casting) -> pa.Array:
        lists = _cast_each(values, items_of, casting)
        ends, inner = _ends(lists), Casting()
        items = build_items(list(chain.from_iterable(value for value in lists if value)), inner)
        _place_faults(inner, ends, casting)
        return pa.ListArray.from_arrays(_offsets(lists, ends), items, type=target)

    return build


def _maps(type_: DataType, build_keys: Build, build_items: Build) -> Build:
    target = arrow_type(type_)

    def build(values: Sequence[Any], casting: Casting) -> pa.Array:
        maps = _cast_each(values, pairs_of, casting)
        ends = _ends(maps)
        pairs = list(chain.from_iterable(value for value in maps if value))
        keys, inner = [key for key, _ in pairs], Casting()
        made_keys = build_keys(keys, inner)
        for index in [i for i, valid in enumerate(made_keys.is_valid().to_pylist()) if not valid]:
            inner.faults.setdefault(index, f"{keys[index]!r} is not a valid key of a map")
        _place_faults(inner, ends, casting)
        inner = Casting()
        made_items = build_items([item for _, item in pairs], inner)
        _place_faults(inner, ends, casting)
        if made_keys.null_count:  # these rows are rejected, and keys cannot be null
            return pa.nulls(len(values), target)
        return pa.MapArray.from_arrays(_offsets(maps, ends), made_keys, made_items, type=target)

    return build


def _structs(fields: Sequence[Field], target: pa.DataType) -> Build:
    builders = [(member.name, builder(member.type)) for member in fields]

    def build(values: Sequence[Any], casting: Casting) -> pa.Array:
        for index, value in enumerate(values):
            if value is not None and not isinstance(value, dict):
                casting.faults[index] = str(unfit(value, "a dict"))
        records = [value if isinstance(value, dict) else None for value in values]
        members = []
        for name, build_member in builders:
            inner = Casting()
            members.append(build_member([None if record is None else record.get(name) for record in records], inner))
            casting.nulled += inner.nulled
            for index, fault in inner.faults.items():
                casting.faults.setdefault(index, f"{name}: {fault}")
        mask = pa.array([record is None for record in records], pa.bool_())
        if not members:
            return pa.array([None if record is None else {} for record in records], target)
        return pa.StructArray.from_arrays(members, fields=list(target), mask=mask)

    return build


def _ends(values: Sequence[Sequence[Any] | None]) -> list[int]:
    """Where the items of each value end among the items of all."""
    return list(accumulate(len(value) if value else 0 for value in values))


def _offsets(values: Sequence[Any], ends: Sequence[int]) -> pa.Array:
    """Offsets of Arrow: a value without one is null."""
    starts = [0, *ends]
    return pa.array(
        [None if value is None else start for value, start in zip([*values, ()], starts, strict=True)], pa.int32()
    )


def _place_faults(inner: Casting, ends: Sequence[int], outer: Casting) -> None:
    """Faults of items as faults of the values that contain them."""
    outer.nulled += inner.nulled
    for index, fault in inner.faults.items():
        outer.faults.setdefault(bisect_right(ends, index), fault)
