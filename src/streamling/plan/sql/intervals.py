"""Interval literals: parsing them, and adding them to times."""

from __future__ import annotations

import re
from decimal import Decimal

from streamling.plan.sql.coercions import cast_to, computed_value, is_time, is_time_of_day
from streamling.plan.sql.values import MONTHS, Interval, Refusal, Value, any_nullable
from streamling.plan.types import DATE, DURATION, INT64, TIME64, TIMESTAMP, DataType

_DAY = 86_400_000_000
_MONTHS = {"year": 12, "month": 1}
_MICROSECONDS = {
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_SHORT = {
    "y": "year", "yr": "year", "mon": "month", "w": "week", "d": "day", "h": "hour", "hr": "hour", "m": "minute",
    "min": "minute", "s": "second", "sec": "second", "ms": "millisecond", "us": "microsecond",
}  # fmt: skip
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?|[+-]?\.\d+)\s*([a-z]+)")


def interval_literal(text: str, unit: str | None) -> Value:
    """`interval '<text>' [unit]`: amounts with units, or one amount and the unit after the literal."""
    whole = f"{text} {unit}" if unit else text
    interval = _parse_interval(whole.lower(), whole)
    if interval.months:
        return Value(f"INTERVAL '{interval.months}' MONTH", MONTHS, nullable=False, constant=interval)
    return Value(_day_time(interval), DURATION, nullable=False, constant=interval)


def _parse_interval(text: str, written: str) -> Interval:
    """The interval in a text in lower case; messages quote it as `written`."""
    months, microseconds, days = Decimal(0), Decimal(0), Decimal(0)
    end = 0
    while match := _PART.match(text, end):
        amount, unit, end = Decimal(match.group(1)), _unit(match.group(2), written), match.end()
        if unit in _MONTHS:
            months += amount * _MONTHS[unit]
        elif unit in ("day", "week"):
            days += amount * (7 if unit == "week" else 1)
        else:
            microseconds += amount * _MICROSECONDS[unit]
    if end == 0 or text[end:].strip():
        raise Refusal(f"'{written}' is not a valid interval", hint="write amounts with units: interval '1 day 2 hours'")
    microseconds += (days % 1) * _DAY
    if months % 1 or microseconds % 1:
        raise Refusal(f"the interval '{written}' has a fraction of a month or of a microsecond")
    return Interval(int(months), int(days), int(microseconds))


def _unit(word: str, written: str) -> str:
    for candidate in (word, word.removesuffix("s")):
        name = _SHORT.get(candidate, candidate)
        if name in _MONTHS or name in _MICROSECONDS:
            return name
    raise Refusal(f"`{word}` in the interval '{written}' is not a unit of time")


def _day_time(interval: Interval) -> str:
    total = interval.total_microseconds
    days, rest = divmod(abs(total), _DAY)
    hours, rest = divmod(rest, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, micros = divmod(rest, 1_000_000)
    sign = "-" if total < 0 else ""
    return f"INTERVAL '{sign}{days} {hours:02}:{minutes:02}:{seconds:02}.{micros:06}' DAY TO SECOND"


def time_arithmetic(sign: str, left: Value, right: Value) -> Value | None:
    """`left + right` or `left - right` with a time or an interval; None if neither side is one."""
    left, right = (computed_value(v) if is_time(v.type) or is_time_of_day(v.type) else v for v in (left, right))
    if sign == "+" and right.type.kind in ("date32", "timestamp") and left.type in (DURATION, MONTHS):
        left, right = right, left
    if is_time(left.type) and right.type in (DURATION, MONTHS):
        return _shift(sign, left, right)
    if is_time(left.type) and is_time(right.type) and sign == "-":
        return _difference(left, right)
    if left.type == TIME64 and right.type == DURATION:
        return Value(f"({left.text} {sign} {right.text})", TIME64, any_nullable((left, right)))
    if left.type == right.type == TIME64 and sign == "-":
        return Value(f"({left.text} - {right.text})", DURATION, any_nullable((left, right)))
    if left.type == right.type == DURATION:
        return Value(f"({left.text} {sign} {right.text})", DURATION, any_nullable((left, right)))
    return None


def _shift(sign: str, time: Value, by: Value) -> Value:
    if isinstance(by.constant, Interval) and time.type == DATE and by.constant.whole_days:
        return _shift_date(sign, time, by.constant)
    start = cast_to(time, TIMESTAMP) if time.type == DATE else time
    nullable = any_nullable((time, by))
    if not isinstance(by.constant, Interval):
        return Value(f"({start.text} {sign} {by.text})", start.type, nullable)
    text = start.text
    if by.constant.months:
        text = f"({text} {sign} INTERVAL '{by.constant.months}' MONTH)"
    if by.constant.days or by.constant.microseconds:
        text = f"({text} {sign} {_day_time(by.constant)})"
    return Value(text, start.type, nullable)


def _shift_date(sign: str, date: Value, by: Interval) -> Value:
    factor = 1 if sign == "+" else -1
    text = date.text
    if by.months:
        text = f"add_months({text}, {factor * by.months})"
    if by.days:
        text = f"date_add({text}, {factor * by.days})"
    return Value(text, DATE, date.nullable)


def _difference(left: Value, right: Value) -> Value:
    nullable = any_nullable((left, right))
    if left.type == right.type == DATE:
        return Value(f"CAST(datediff({left.text}, {right.text}) AS BIGINT)", INT64, nullable)
    type_: DataType = next((t for t in (left.type, right.type) if t.zone is not None), TIMESTAMP)
    return Value(f"({cast_to(left, type_).text} - {cast_to(right, type_).text})", DURATION, nullable)
