"""Functions for dates and timestamps. The time zone is UTC; `now()` is the same for all rows of an epoch."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.errors import SQL_UNSUPPORTED
from streamling.plan.sql.coercions import cast_to, computed_value, is_float, is_integer, is_time, is_time_of_day
from streamling.plan.sql.epoch import EPOCH_NOW, NOW
from streamling.plan.sql.functions.signature import (
    ANY,
    INTEGER,
    LITERAL_TEXT,
    POSITION,
    TIME,
    Function,
    Parameter,
    form,
)
from streamling.plan.sql.intervals import interval_literal
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.sql.time_formats import java_format
from streamling.plan.sql.values import Interval, Refusal, Value, any_nullable, string_literal
from streamling.plan.types import DATE, FLOAT64, INT32, INT64, NULL, STRING, TIME64, TIMESTAMP, TIMESTAMP_UTC, DataType

_CLOCK = frozenset({EPOCH_NOW})
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_PARTS: dict[str, tuple[str, DataType]] = {
    "year": ("year({0})", INT32),
    "isoyear": ("CAST(extract(YEAROFWEEK FROM {0}) AS INT)", INT32),
    "quarter": ("quarter({0})", INT32),
    "month": ("month({0})", INT32),
    "week": ("weekofyear({0})", INT32),
    "day": ("day({0})", INT32),
    "hour": ("hour({0})", INT32),
    "minute": ("minute({0})", INT32),
    "second": ("second({0})", INT32),
    "millisecond": ("CAST(floor(extract(SECOND FROM {0}) * 1000) AS INT)", INT32),
    "microsecond": ("CAST(extract(SECOND FROM {0}) * 1000000 AS INT)", INT32),
    "dow": ("(dayofweek({0}) - 1)", INT32),
    "isodow": ("(weekday({0}) + 1)", INT32),
    "doy": ("dayofyear({0})", INT32),
    "epoch": ("(unix_micros(CAST({0} AS TIMESTAMP)) / 1000000D)", FLOAT64),
}


_CLOCK_PARTS = ("hour", "minute", "second", "millisecond", "microsecond")


def _word(value: Value, known: Sequence[str]) -> str:
    word = str(value.constant).lower()
    singular = word if word in known else word.removesuffix("s")
    if singular not in known:
        raise Refusal(f"'{value.constant}' is not a valid unit; accepted: {', '.join(known)}")
    return singular


def _date_trunc(arguments: Sequence[Value]) -> Value:
    unit, time = arguments
    type_ = TIMESTAMP if time.type == DATE else time.type
    instant = f"date_trunc({string_literal(_word(unit, _UNITS))}, {time.text})"
    return Value(instant if type_.zone else f"CAST({instant} AS TIMESTAMP_NTZ)", type_, time.nullable)


def _date_part(arguments: Sequence[Value]) -> Value:
    part, time = arguments
    parts = _CLOCK_PARTS if time.type == TIME64 else tuple(_PARTS)
    template, type_ = _PARTS[_word(part, parts)]
    moment = cast_to(time, TIMESTAMP) if time.type == DATE else time
    return Value(template.format(moment.text), type_, time.nullable)


def _timestamp_from(unit: str) -> Function:
    """A number is the count of units since 1970, a text is parsed; digits finer than the unit are truncated."""

    def build(arguments: Sequence[Value]) -> Value:
        value = computed_value(arguments[0])
        if len(arguments) > 1:
            return _truncate(_parse(name, value, arguments[1:]), unit)
        if value.type in (STRING, NULL) or value.type.kind in ("timestamp", "date32"):
            return _truncate(cast_to(value, value.type if value.type.zone else TIMESTAMP), unit)
        if is_integer(value.type) or (is_float(value.type) and unit == "seconds"):
            instant = f"timestamp_{unit}({value.text})"
            return Value(f"CAST({instant} AS TIMESTAMP_NTZ)", TIMESTAMP, value.nullable)
        raise Refusal(f"`{name}(value)` does not accept {value.type}")

    name = f"to_timestamp_{unit}"
    return Function(f"{name}(value[, format, ..])", (ANY, LITERAL_TEXT), build, optional=1, variadic=True)


def _parse(name: str, value: Value, formats: Sequence[Value]) -> Value:
    """A text parsed with the first format that fits."""
    if value.type not in (STRING, NULL):
        raise Refusal(f"`{name}(value, format, ..)` expects text, got {value.type}")
    patterns = [string_literal(java_format(str(f.constant), reading=True)) for f in formats]
    attempts = [f"try_to_timestamp({value.text}, {pattern})" for pattern in patterns[:-1]]
    attempts.append(f"to_timestamp({value.text}, {patterns[-1]})")
    time = attempts[0] if len(attempts) == 1 else f"coalesce({', '.join(attempts)})"
    return Value(f"CAST({time} AS TIMESTAMP_NTZ)", TIMESTAMP, value.nullable)


def _truncate(value: Value, unit: str) -> Value:
    if unit == "micros":
        return value
    word = {"seconds": "second", "millis": "millisecond"}[unit]
    text = f"CAST(date_trunc('{word}', {value.text}) AS {spark_type(value.type)})"
    return Value(text, value.type, value.nullable)


def _to_timestamp(arguments: Sequence[Value]) -> Value:
    unit = "seconds" if is_integer(arguments[0].type) or is_float(arguments[0].type) else "micros"
    return _timestamp_from(unit).build(arguments)


def _to_unixtime(arguments: Sequence[Value]) -> Value:
    value = computed_value(arguments[0])
    if is_integer(value.type) or is_float(value.type):
        return cast_to(value, INT64)
    if len(arguments) > 1:
        value = _parse("to_unixtime", value, arguments[1:])
    moment = cast_to(value, TIMESTAMP_UTC)
    return Value(f"unix_seconds({moment.text})", INT64, value.nullable)


def _to_date(arguments: Sequence[Value]) -> Value:
    value = computed_value(arguments[0])
    if is_integer(value.type):
        days = POSITION.admit(value)
        return Value(f"date_from_unix_date({days.text})", DATE, value.nullable)
    if len(arguments) > 1:
        value = _parse("to_date", value, arguments[1:])
    return cast_to(value, DATE)


def _to_char(arguments: Sequence[Value]) -> Value:
    value, format_ = computed_value(arguments[0]), arguments[1]
    if not (is_time(value.type) or value.type == TIME64):
        raise Refusal(f"`to_char(time, format)` does not accept {value.type}")
    pattern = string_literal(java_format(str(format_.constant), reading=False))
    return Value(f"date_format({value.text}, {pattern})", STRING, value.nullable)


def _date_bin(arguments: Sequence[Value]) -> Value:
    """The start of the interval that contains a time; intervals are counted from the origin, 1970 by default."""
    stride, time = arguments[0].constant, arguments[1]
    type_ = TIMESTAMP if time.type == DATE else time.type
    moment = cast_to(time, TIMESTAMP_UTC).text
    if not isinstance(stride, Interval):
        raise AssertionError("a literal was admitted")
    if stride.months:
        if len(arguments) > 2 or stride.days or stride.microseconds:
            message = "unsupported: `date_bin` with months accepts neither other units nor an origin"
            raise Refusal(message, condition=SQL_UNSUPPORTED)
        start = _month_bin(moment, stride.months)
    else:
        origin = cast_to(arguments[2], TIMESTAMP_UTC).text if len(arguments) > 2 else "timestamp_micros(0)"
        start = (
            f"timestamp_micros(unix_micros({moment}) - "
            f"pmod(unix_micros({moment}) - unix_micros({origin}), {stride.total_microseconds}L))"
        )
    return Value(start if type_.zone else f"CAST({start} AS TIMESTAMP_NTZ)", type_, any_nullable(arguments))


def _month_bin(moment: str, months: int) -> str:
    month = f"((year({moment}) - 1970) * 12 + month({moment}) - 1)"
    return f"CAST(add_months(DATE '1970-01-01', {month} - pmod({month}, {months})) AS TIMESTAMP)"


def _stride(value: Value) -> Value:
    if isinstance(value.constant, str):
        value = interval_literal(value.constant, None)
    if not isinstance(value.constant, Interval):
        raise Refusal("expected a literal interval")
    if not (value.constant.months > 0 or value.constant.total_microseconds > 0):
        raise Refusal("the interval must be positive")
    return value


_CURRENT_TIMESTAMP = Function("now()", (), lambda _: Value(NOW, TIMESTAMP_UTC, nullable=False), takes=_CLOCK)
_CURRENT_DATE = Function(
    "current_date()", (), lambda _: Value(f"CAST({NOW} AS DATE)", DATE, nullable=False), takes=_CLOCK
)


def _any_time(value: Value) -> Value:
    return computed_value(value) if is_time_of_day(value.type) else TIME.admit(value)


_DATE_PART = Function("date_part(part, time)", (LITERAL_TEXT, Parameter("a time", _any_time)), _date_part)
_TO_CHAR = Function("to_char(time, format)", (ANY, LITERAL_TEXT), _to_char)
_CURRENT_TIME = Function(
    "current_time()", (), lambda _: Value(f"CAST({NOW} AS TIME(6))", TIME64, nullable=False), takes=_CLOCK
)

FUNCTIONS: dict[str, Function] = {
    "now": _CURRENT_TIMESTAMP,
    "current_timestamp": _CURRENT_TIMESTAMP,
    "current_date": _CURRENT_DATE,
    "today": _CURRENT_DATE,
    "current_time": _CURRENT_TIME,
    "date_bin": Function(
        "date_bin(interval, time[, origin])", (Parameter("an interval", _stride), TIME, TIME), _date_bin, optional=1
    ),
    "to_char": _TO_CHAR,
    "date_format": _TO_CHAR,
    "make_date": Function("make_date(year, month, day)", (POSITION,) * 3, form("make_date({0}, {1}, {2})", DATE)),
    "date_trunc": Function("date_trunc(unit, time)", (LITERAL_TEXT, TIME), _date_trunc),
    "date_part": _DATE_PART,
    "datepart": _DATE_PART,
    "to_timestamp": Function(
        "to_timestamp(value[, format, ..])", (ANY, LITERAL_TEXT), _to_timestamp, optional=1, variadic=True
    ),
    "to_timestamp_seconds": _timestamp_from("seconds"),
    "to_timestamp_millis": _timestamp_from("millis"),
    "to_timestamp_micros": _timestamp_from("micros"),
    "to_unixtime": Function(
        "to_unixtime(time[, format, ..])", (ANY, LITERAL_TEXT), _to_unixtime, optional=1, variadic=True
    ),
    "to_date": Function("to_date(value[, format, ..])", (ANY, LITERAL_TEXT), _to_date, optional=1, variadic=True),
    "from_unixtime": Function(
        "from_unixtime(seconds)", (INTEGER,), form("CAST(timestamp_seconds({0}) AS TIMESTAMP_NTZ)", TIMESTAMP)
    ),
}
