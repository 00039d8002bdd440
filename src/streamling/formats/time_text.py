"""Dates and timestamps as text, for every value of their types.

Arrow writes them fast, but not beyond the year 32767: it gives another date, a text about the range, or an error. An
array with such a value is written value by value.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_DAY_S = 24 * 3600
# The days of Arrow's last years, -32767-01-01 and 32767-12-31.
_FIRST_DAY, _LAST_DAY = -12_687_428, 11_248_737
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
# Days from 0000-03-01, on which the years of the calculation begin, to 1970-01-01; days of 400, 100 and 4 years.
_TO_1970, _DAYS_400, _DAYS_100, _DAYS_4 = 719_468, 146_097, 36_524, 1461


def time_texts(array: pa.Array) -> pa.Array:
    """Dates as `2026-01-31`, timestamps as `2026-01-31 12:00:00.000000`, with a zone in UTC and with `Z`."""
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    if not is_beyond_arrow(array):
        return array.cast(pa.string())
    return pa.array(
        [None if number is None else time_text(number, array.type) for number in _numbers(array).to_pylist()],
        pa.string(),
    )


def is_beyond_arrow(array: pa.Array) -> bool:
    """Whether Arrow cannot write one of these dates or timestamps."""
    day = _units_per_day(array.type)
    if day is None:
        return False
    least, most = pc.min_max(_numbers(array)).as_py().values()
    return least is not None and (least < _FIRST_DAY * day or most >= (_LAST_DAY + 1) * day)


def time_text(number: int, type_: pa.DataType) -> str:
    """The text of a number of days, or of units of a timestamp, since 1970."""
    if pa.types.is_date(type_):
        return _date_text(number // (_units_per_day(type_) or 1))
    per_second = _PER_SECOND[type_.unit]
    seconds, fraction = divmod(number, per_second)
    days, second = divmod(seconds, _DAY_S)
    text = f"{_date_text(days)} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    if per_second > 1:
        text += f".{fraction:0{len(str(per_second)) - 1}d}"
    return text if type_.tz is None else f"{text}Z"


def _units_per_day(type_: pa.DataType) -> int | None:
    """None for types that Arrow writes completely."""
    if pa.types.is_timestamp(type_):
        return _DAY_S * _PER_SECOND[type_.unit]
    if pa.types.is_date(type_):
        return 1 if pa.types.is_date32(type_) else _DAY_S * 1000
    return None


def _numbers(array: pa.Array) -> pa.Array:
    return array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())


def _date_text(days: int) -> str:
    """The date so many days after 1970-01-01 in the Gregorian calendar, with the year 0 and negative years."""
    cycles, day = divmod(days + _TO_1970, _DAYS_400)
    year = (day - day // (_DAYS_4 - 1) + day // _DAYS_100 - day // (_DAYS_400 - 1)) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153  # from March on
    day -= (153 * month + 2) // 5
    year += 400 * cycles + (month >= 10)
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month + 3 if month < 10 else month - 9:02d}-{day + 1:02d}"
