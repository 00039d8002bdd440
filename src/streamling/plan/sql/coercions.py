"""Implicit casts: which types are compatible, and how values are cast to a common type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from streamling.plan.sql.casts import cast
from streamling.plan.sql.spark_types import MAX_PRECISION, check_computable, computed_type, digits
from streamling.plan.sql.values import Refusal, Value
from streamling.plan.sql.wide import common_wide, is_number_text
from streamling.plan.types import (
    BOOLEAN,
    FLOAT64,
    FLOATS,
    INTEGERS,
    NULL,
    STRING,
    TIME64,
    TIMESTAMP,
    DataType,
    decimal,
    list_of,
)

DECIMAL_OF_INTEGER = {"int8": decimal(3, 0), "int16": decimal(5, 0), "int32": decimal(10, 0), "int64": decimal(20, 0)}


def is_integer(type_: DataType) -> bool:
    """Whether it is computed as an integer; `uint64` is not, it is computed as a decimal."""
    return computed_type(type_) in INTEGERS


def is_float(type_: DataType) -> bool:
    return computed_type(type_) in FLOATS


def is_decimal(type_: DataType) -> bool:
    return computed_type(type_).kind == "decimal"


def is_number(type_: DataType) -> bool:
    return is_integer(type_) or is_float(type_) or is_decimal(type_)


def is_time(type_: DataType) -> bool:
    """A date or a timestamp."""
    return computed_type(type_).kind in ("date32", "timestamp")


def is_time_of_day(type_: DataType) -> bool:
    return computed_type(type_) == TIME64


def computed_value(value: Value) -> Value:
    """The value with the type it has in a computation; the text is the same."""
    check_computable(value.type)
    type_ = computed_type(value.type)
    return value if type_ == value.type else replace(value, type=type_)


def common_type(left: DataType, right: DataType, *, text_wins: bool = False) -> DataType | None:
    """The type to which both sides can be cast without loss, None if there is none.

    Of text and a number or a time, the text is cast; with `text_wins`, as for the results of a CASE, the other one.
    """
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    left, right = computed_type(left), computed_type(right)
    if left == right:
        return left
    if (left.wide or right.wide) and STRING not in (left, right):
        return common_wide(left, right)
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_time(left) and is_time(right):
        return _common_time(left, right)
    if STRING in (left, right):
        other = right if left == STRING else left
        castable = is_number(other) or is_time(other) or is_time_of_day(other) or other.wide
        return (STRING if text_wins else other) if castable else None
    if left.item is not None and right.item is not None and left.kind == right.kind == "list":
        item = common_type(left.item, right.item, text_wins=text_wins)
        return None if item is None else list_of(item)
    return None


def _common_number(left: DataType, right: DataType) -> DataType | None:
    if is_integer(left) and is_integer(right):
        return wider_integer(left, right)
    if is_float(left) or is_float(right):
        return FLOAT64
    return _wider_decimal(decimal_of(left), decimal_of(right))


def _common_time(left: DataType, right: DataType) -> DataType:
    zoned = next((t for t in (left, right) if t.zone is not None), None)
    return zoned or TIMESTAMP


def wider_integer(left: DataType, right: DataType) -> DataType:
    return max(left, right, key=INTEGERS.index)


def decimal_of(type_: DataType) -> DataType:
    """The decimal type that holds every value of an integer or decimal type."""
    return DECIMAL_OF_INTEGER.get(type_.kind, type_)


def _wider_decimal(left: DataType, right: DataType) -> DataType | None:
    (p1, s1), (p2, s2) = digits(left), digits(right)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    return decimal(precision, scale) if precision <= MAX_PRECISION else None


def cast_to(value: Value, type_: DataType) -> Value:
    """The value cast to `type_` implicitly."""
    if value.type == type_:
        return value
    _check_number(value, type_)
    return cast(value, type_)


_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_FRACTION = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?[df]?|inf|infinity|nan)\s*", re.IGNORECASE)


def _check_number(value: Value, type_: DataType) -> None:
    """Refuses a text literal that is not a number: its cast would fail for every row."""
    if not isinstance(value.constant, str) or not (is_number(type_) or type_.wide):
        return
    if type_.wide and type_.native is None:
        fits = is_number_text(value.constant)
    else:
        pattern = _INTEGER if is_integer(type_) or type_.wide else _FRACTION
        fits = pattern.fullmatch(value.constant) is not None
    if not fits:
        raise Refusal(f"'{value.constant}' is not a valid {type_}")


def cast_to_common(values: Sequence[Value], *, text_wins: bool = False) -> tuple[DataType, list[Value]]:
    """The common type of all values, and the values cast to it."""
    narrowed = _literals_beside_decimals(values)

    def common(left: DataType, right: DataType) -> DataType:
        both = common_type(left, right, text_wins=text_wins)
        if both is None:
            raise Refusal(f"types {left} and {right} are not compatible")
        return both

    type_ = reduce(common, (value.type for value in narrowed))
    return type_, [cast_to(value, type_) for value in narrowed]


def _literals_beside_decimals(values: Sequence[Value]) -> list[Value]:
    """Narrows integer literals to the digits they need if their 20 digits do not fit together with a decimal."""
    types = [computed_type(value.type) for value in values]
    widths = [digits(type_) for type_ in types if type_.kind in ("decimal", "decimal_arb")]
    if not widths or max(s for _, s in widths) + 20 <= MAX_PRECISION:
        return list(values)
    return [_narrow_decimal(value) if is_integer(value.type) else value for value in values]


def _narrow_decimal(value: Value) -> Value:
    if not isinstance(value.constant, int):
        return value
    type_ = decimal(max(1, len(str(abs(value.constant)))), 0)
    return replace(cast(value, type_), type=type_, constant=value.constant)


def condition(value: Value) -> Value:
    """The value as a boolean; raises Refusal if it is not one."""
    if value.type == NULL:
        return cast_to(value, BOOLEAN)
    if value.type != BOOLEAN:
        raise Refusal(f"a condition must be boolean, but this one is {value.type}")
    return value
