"""Casts single JSON values to Python values that the Arrow types of our columns accept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from streamling.formats.json_text import format_value
from streamling.plan.types import DataType, Field

_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIGNED = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
_RANGES = _SIGNED | {f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
# Microseconds of a unit as a fraction.
_UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_LARGEST = {"float16": 65504.0, "float32": math.inf}
Cast = Callable[[Any], Any]


class ContainerInText(ValueError):
    """An object or a list where text is expected; with its JSON text in its place the value fits."""


class InnerMismatch(ValueError):
    """A value inside of a nested value does not fit its type; `path` leads to it from the column."""

    def __init__(self, path: str, value: Any, type_: DataType) -> None:
        super().__init__(value)
        self.path = path
        self.value = value
        self.type = type_


def value_cast(type_: DataType) -> Cast:
    """A function that casts values of `json_text.parse` to the Arrow type of `type_`.

    It raises ValueError or ArithmeticError for a value that does not fit: InnerMismatch if it is inside of another.
    """
    if type_.kind in _RANGES:
        return _integer(*_RANGES[type_.kind])
    match type_.kind:
        case "boolean":
            return _boolean
        case "float64":
            return _float
        case "float16" | "float32":
            return lambda value: _short_float(value, _LARGEST[type_.kind])
        case "string":
            return _text_column
        case "interval":
            return _text
        case "binary":
            return lambda value: _bytes(value, type_.length)
        case "date32" | "date64":
            return lambda value: _date(value, milliseconds=type_.kind == "date64")
        case "timestamp":
            return lambda value: _moment(value, type_.unit or "us")
        case "time32" | "time64":
            return lambda value: _time(value, "ms" if type_.kind == "time32" else "us")
        case "duration":
            return _LONG
        case "decimal" | "decimal_arb":
            return lambda value: _decimal(value, type_)
        case "null":
            return _reject
        case "list" if type_.item:
            return _list(type_.item)
        case "map" if type_.item:
            return _map(type_.item)
        case "struct":
            return _struct(type_.fields)
    raise AssertionError(f"{type_} cannot be declared")


def _integer(least: int, most: int) -> Cast:
    def cast(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(value)
        return value

    return cast


_LONG = _integer(*_RANGES["int64"])


def _struct(fields: Sequence[Field]) -> Cast:
    members = [(f.name, _inner_cast(f.type, lambda name: f".{name}")) for f in fields]

    def cast(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(value)
        return {name: inner(value.get(name), name) for name, inner in members}

    return cast


def _list(item: DataType) -> Cast:
    inner = _inner_cast(item, lambda index: f"[{index}]")

    def cast(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(value)
        return [inner(one, index) for index, one in enumerate(value)]

    return cast


def _map(item: DataType) -> Cast:
    inner = _inner_cast(item, lambda key: f"[{format_value(key)}]")

    def cast(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise ValueError(value)
        return [(_text(key), inner(one, key)) for key, one in value.items()]

    return cast


def _inner_cast(type_: DataType, step: Callable[[Any], str]) -> Callable[[Any, Any], Any]:
    """A cast of values inside of nested ones. Its errors lead to the value; `step` writes the place of one of them."""
    outer = value_cast(type_)

    def cast(value: Any, place: Any) -> Any:
        if value is None:
            return None
        try:
            return outer(value)
        except ContainerInText:
            raise
        except InnerMismatch as error:
            raise InnerMismatch(step(place) + error.path, error.value, error.type) from None
        except (ValueError, ArithmeticError):
            raise InnerMismatch(step(place), value, type_) from None

    return cast


def _reject(value: Any) -> None:
    raise ValueError(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        raise ValueError(value)
    return _finite(float(value))


def _short_float(value: Any, largest: float) -> float:
    """Cast by Arrow from all digits, as in whole chunks: a double in between would round twice."""
    _float(value)
    number = _finite(pa.scalar(str(value)).cast(pa.float32()).as_py())
    if abs(number) > largest:
        raise ValueError(value)
    return number


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(value)
    return value


def _text_column(value: Any) -> str:
    if isinstance(value, dict | list):
        raise ContainerInText(value)
    return _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    value.encode()  # JSON can have half of a surrogate pair, which is not valid text
    return value


def _bytes(value: Any, length: int | None) -> bytes:
    content = bytes.fromhex(_text(value).removeprefix("0x"))
    if length is not None and len(content) != length:
        raise ValueError(value)
    return content


def _date(value: Any, *, milliseconds: bool) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    days = _integer(-(2**53), 2**53)(value)
    return (_EPOCH + timedelta(milliseconds=days) if milliseconds else _EPOCH + days * _DAY).date()


def _moment(value: Any, unit: str) -> int:
    """Microseconds since 1970, rounded down."""
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    factor, divisor = _UNITS[unit]
    microseconds = _LONG(value) * factor // divisor
    return int(_LONG(microseconds))


def _time(value: Any, unit: str) -> time:
    if isinstance(value, str):
        time_of_day = time.fromisoformat(value)
        if time_of_day.tzinfo is not None:  # without a date it cannot be moved to another zone
            raise ValueError(value)
        return time_of_day
    factor, _ = _UNITS[unit]
    since = timedelta(microseconds=_integer(0, 2**53)(value) * factor)
    if since >= _DAY:
        raise ValueError(value)
    return (_EPOCH + since).time()


_NATIVE = {"u256": (0, 2**256 - 1), "i256": (-(2**255), 2**255 - 1)}


def _decimal(value: Any, type_: DataType) -> Decimal | str:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise ValueError(value)
    try:
        number = Decimal(value)
    except InvalidOperation as error:
        raise ValueError(value) from error
    if not number.is_finite():
        raise ValueError(value)
    if type_.native is not None and not _NATIVE[type_.native][0] <= number <= _NATIVE[type_.native][1]:
        raise ValueError(value)
    precision, scale = type_.precision or 0, type_.scale or 0
    negative, digits = _unscaled(number, precision, scale) if number else (False, "0")
    if type_.kind == "decimal" and not type_.wide:
        return Decimal((int(negative), tuple(map(int, digits)), -scale))
    if scale and number:
        digits = digits.zfill(scale + 1)
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if negative else digits


def _unscaled(number: Decimal, precision: int, scale: int) -> tuple[bool, str]:
    """Sign and digits of a number other than zero, `scale` of them after the point. Text is fast at any length."""
    if number.adjusted() >= precision - scale:
        raise ValueError(number)
    sign, figures, exponent = number.as_tuple()
    digits, more = "".join(map(str, figures)), int(exponent) + scale
    if more >= 0:
        return bool(sign), digits + "0" * more
    if digits[more:].strip("0") or -more >= len(digits):
        raise ValueError(number)
    return bool(sign), digits[:more]
