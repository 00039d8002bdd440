"""Single values of JSON as the Arrow carriers of our types take them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from streamling.plan.types import DataType

_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIGNED = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
_RANGES = _SIGNED | {f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
# Microseconds of a unit as a fraction.
_UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
Convert = Callable[[Any], Any]


def conversion(type_: DataType) -> Convert:
    """What turns values of `json.loads`, with Decimal for fractions, into such of the carrier.

    It raises ValueError, or ArithmeticError, for a value that does not fit.
    """
    if type_.kind in _RANGES:
        return _integer(*_RANGES[type_.kind])
    match type_.kind:
        case "boolean":
            return _boolean
        case "float16" | "float32" | "float64":
            return _float
        case "string" | "interval":
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
            return _integer(*_RANGES["int64"])
        case "decimal" | "decimal_arb":
            return lambda value: _decimal(value, type_)
        case "null":
            return _nothing
    raise AssertionError(f"{type_} cannot be declared")


def _integer(least: int, most: int) -> Convert:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(value)
        return value

    return convert


def _nothing(value: Any) -> None:
    raise ValueError(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(value)
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(value)
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _bytes(value: Any, length: int | None) -> bytes:
    found = bytes.fromhex(_text(value).removeprefix("0x"))
    if length is not None and len(found) != length:
        raise ValueError(value)
    return found


def _date(value: Any, *, milliseconds: bool) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    days = _integer(-(2**53), 2**53)(value)
    return (_EPOCH + timedelta(milliseconds=days) if milliseconds else _EPOCH + days * _DAY).date()


def _moment(value: Any, unit: str) -> int:
    """Microseconds since 1970; what is finer is cut off."""
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    factor, divisor = _UNITS[unit]
    return int(_integer(*_RANGES["int64"])(value) * factor // divisor)


def _time(value: Any, unit: str) -> time:
    if isinstance(value, str):
        return time.fromisoformat(value)
    factor, _ = _UNITS[unit]
    found = timedelta(microseconds=_integer(0, 2**53)(value) * factor)
    if found >= _DAY:
        raise ValueError(value)
    return (_EPOCH + found).time()


def _decimal(value: Any, type_: DataType) -> Decimal | str:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise ValueError(value)
    try:
        number = Decimal(value)
    except InvalidOperation as error:
        raise ValueError(value) from error
    if not number.is_finite():
        raise ValueError(value)
    scale = type_.scale or 0
    sign, digits, exponent = number.as_tuple()
    unscaled = int("".join(map(str, digits)))
    shift = int(exponent) + scale
    if unscaled and not -len(digits) < shift <= (type_.precision or 0):
        raise ValueError(value)
    scaled, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift) if unscaled else (0, 0)
    if rest or scaled >= 10 ** (type_.precision or 0):
        raise ValueError(value)
    scaled = -scaled if sign else scaled
    if type_.kind == "decimal" and not type_.wide:
        return Decimal((int(scaled < 0), tuple(map(int, str(abs(scaled)))), -scale))
    text = f"{abs(scaled):0{scale + 1}d}"
    text = f"{text[:-scale]}.{text[-scale:]}" if scale and scaled else str(abs(scaled))
    return f"-{text}" if scaled < 0 else text
