"""Durations as text: `500ms`, `1s`, `1m 30s`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

# Nanoseconds per unit; `format_duration` prints the first name of each.
_UNITS = {
    1: ("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"),
    1_000: ("us", "µs", "μs", "usec", "usecs", "micros", "microsecond", "microseconds"),
    1_000_000: ("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"),
    1_000_000_000: ("s", "sec", "secs", "second", "seconds"),
    60 * 1_000_000_000: ("m", "min", "mins", "minute", "minutes"),
    3_600 * 1_000_000_000: ("h", "hr", "hrs", "hour", "hours"),
    86_400 * 1_000_000_000: ("d", "day", "days"),
    7 * 86_400 * 1_000_000_000: ("w", "week", "weeks"),
}
_NANOSECONDS = {name: size for size, names in _UNITS.items() for name in names}
_PART = re.compile(r"([0-9]{1,18})\s*([a-zA-Zµμ]+)\s*")
ACCEPTED = "durations like 500ms, 1s, 1m 30s with the units ns, us, ms, s, m, h, d, w"


def parse_duration(text: str) -> timedelta:
    """The duration written in `text`. Raises ValueError; its message continues a sentence after the field's name.

    Fractions of a microsecond are rounded up, so that no positive duration becomes zero.
    """
    stripped = text.strip()
    if stripped == "0":
        return timedelta(0)
    if stripped.isdecimal():
        raise ValueError(f"is '{text}', a number without a unit; accepted: {ACCEPTED}")
    total, position = 0, 0
    while part := _PART.match(stripped, position):
        number, unit = part.groups()
        if unit not in _NANOSECONDS:
            raise ValueError(f"is '{text}' with the unknown unit '{unit}'; accepted: {ACCEPTED}")
        total += int(number) * _NANOSECONDS[unit]
        position = part.end()
    if position == 0 or position != len(stripped):
        raise ValueError(f"is '{text}', which is not a duration; accepted: {ACCEPTED}")
    try:
        return timedelta(microseconds=-(-total // 1_000))
    except OverflowError:
        raise ValueError(f"is '{text}', which is too long") from None


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back: `1m 30s`."""
    rest = (duration.days * 86_400_000_000 + duration.seconds * 1_000_000 + duration.microseconds) * 1_000
    parts = []
    for size, names in reversed(_UNITS.items()):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{names[0]}")
    return " ".join(parts) or "0"


def _from_value(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_duration(str(value))
    raise ValueError(f"must be a duration; accepted: {ACCEPTED}")


Duration = Annotated[
    timedelta,
    BeforeValidator(_from_value),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "format": "duration", "examples": ["500ms", "1s", "1m 30s"]}),
]
"""A duration in an options or settings model."""
