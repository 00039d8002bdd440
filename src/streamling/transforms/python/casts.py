"""One Python value as a value of a column: what is accepted, what becomes null, what is an error of the row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from streamling.plan.types import DataType

Cast = Callable[[Any], Any]
"""From any value but None to one that Arrow takes; None: the value becomes null. Raises Unfit."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_DIGITS = 70_000
_RANGES = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "i256": (-(2**255), 2**255 - 1),
    "u256": (0, 2**256 - 1),
}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_CLOCK = re.compile(r"(-?)(\d+):(\d\d):(\d\d(?:\.\d+)?)")


class Unfit(Exception):
    """A value that a column cannot hold."""


def cast_for(type_: DataType) -> Cast:
    """The cast to a type that is not nested."""
    kind = type_.kind
    if kind in _RANGES:
        return _integer(*_RANGES[kind])
    match kind:
        case "float16" | "float32" | "float64":
            return _float
        case "boolean":
            return _boolean
        case "decimal" | "decimal_arb":
            return _decimal(type_)
        case "date32" | "date64":
            return _date
        case "timestamp":
            return _timestamp
        case "time32" | "time64":
            return _time
        case "duration":
            return _duration
        case "binary":
            return _binary(type_.length)
        case "null":
            return lambda value: None
    return _text


def unfit(value: Any, what: str) -> Unfit:
    try:
        shown = repr(value)
    except Exception:  # an integer of thousands of digits, or an object that cannot show itself
        shown = f"a value of type {type(value).__name__}"
    return Unfit(f"{shown if len(shown) <= 100 else f'{shown[:100]}...'} is not {what}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return _valid(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bool | int | float | dict | list | tuple):
        try:
            return _valid(json.dumps(value, default=_text, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise unfit(value, "a value that JSON can hold") from error
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return json.dumps(value / timedelta(milliseconds=1))
    if isinstance(value, UUID):
        return str(value)
    raise unfit(value, "text")


def _valid(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise unfit(text, "valid text: it has half of a character") from error
    return text


def _number(value: Any) -> Decimal | None:
    """A number as it is written; None for text that is none. Raises Unfit for other values."""
    if isinstance(value, bool | int | Decimal):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, str):
        try:
            return Decimal(value.strip())
        except InvalidOperation:
            return None
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a number of numpy
        return _number(value.item())
    raise unfit(value, "a number")


def _integer(low: int, high: int) -> Cast:
    def cast(value: Any) -> int | None:
        number = int(value) if isinstance(value, int) else _whole(_number(value))
        return number if number is not None and low <= number <= high else None

    return cast


def _whole(number: Decimal | None) -> int | None:
    # A number with a huge exponent would take all memory as an integer; it fits no column.
    return int(number) if number is not None and number.is_finite() and number.adjusted() < 400 else None


def _float(value: Any) -> float | None:
    number = _number(value)
    try:
        return None if number is None else float(number)
    except (OverflowError, ValueError):
        return None


def _boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().casefold())
    if isinstance(value, int | float | Decimal):
        return None if math.isnan(value) else value != 0
    return None


def _decimal(type_: DataType) -> Cast:
    scale, precision = type_.scale or 0, type_.precision or 0
    context = Context(
        prec=max(precision, 1), Emax=_MOST_DIGITS * 2, Emin=-_MOST_DIGITS * 2, traps=[Inexact, InvalidOperation]
    )
    unit = Decimal(1).scaleb(-scale, Context(prec=_MOST_DIGITS, Emin=-_MOST_DIGITS))
    low, high = _RANGES.get(type_.native or "", (None, None))

    def cast(value: Any) -> Decimal | str:
        number = None if isinstance(value, bool) else _number(value)
        if number is None or not number.is_finite():
            raise unfit(value, "a number")
        try:
            fixed = number.quantize(unit, context=context)
        except (Inexact, InvalidOperation) as error:
            raise unfit(value, f"a {type_}: it has too many digits; round it") from error
        if low is not None and high is not None and not low <= fixed <= high:
            raise unfit(value, f"a {type_}: it is out of range")
        if not type_.wide:
            return fixed
        return f"{fixed:f}" if fixed else "0"

    return cast


def _milliseconds(value: float | Decimal) -> timedelta:
    try:
        if isinstance(value, int):  # exact, where a float of so many milliseconds would not be
            return timedelta(milliseconds=1) * value
        return timedelta(milliseconds=float(value))
    except (OverflowError, ValueError) as error:
        raise unfit(value, "a number of milliseconds in range") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _timestamp(value: Any) -> datetime:
    """An instant: what has no zone is taken as UTC."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    try:
        if _is_number(value):
            return _EPOCH + _milliseconds(value)
        if isinstance(value, str):
            return datetime.fromisoformat(value.strip())
    except (ValueError, OverflowError) as error:
        raise unfit(value, "a timestamp") from error
    raise unfit(value, "a timestamp")


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    moment = _timestamp(value)
    return (moment.astimezone(UTC) if moment.tzinfo is not None else moment).date()


def _time(value: Any) -> time:
    if isinstance(value, time):
        return value.replace(tzinfo=None)
    passed = _duration(value)
    if not timedelta(0) <= passed < timedelta(days=1):
        raise unfit(value, "a time of day")
    return (_EPOCH + passed).time()


def _duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if _is_number(value):
        return _milliseconds(value)
    if isinstance(value, str) and (clock := _CLOCK.fullmatch(value.strip())) is not None:
        sign, hours, minutes, seconds = clock.groups()
        microseconds = int(Decimal(seconds) * 1_000_000)
        try:
            passed = timedelta(hours=int(hours), minutes=int(minutes), microseconds=microseconds)
        except OverflowError as error:
            raise unfit(value, "a duration in range") from error
        return -passed if sign else passed
    raise unfit(value, "a time or duration")


def _binary(length: int | None) -> Cast:
    def cast(value: Any) -> bytes:
        if isinstance(value, str):
            try:
                made = bytes.fromhex(value.removeprefix("0x"))
            except ValueError as error:
                raise unfit(value, "hexadecimal text") from error
        elif isinstance(value, bytes | bytearray | memoryview):
            made = bytes(value)
        else:
            raise unfit(value, "bytes")
        if length is not None and len(made) != length:
            raise unfit(value, f"{length} bytes long")
        return made

    return cast


def pairs_of(value: Any) -> list[tuple[Any, Any]]:
    """The entries of a map. Raises Unfit."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        return [(key, item) for key, item in value]
    raise unfit(value, "a dict")
