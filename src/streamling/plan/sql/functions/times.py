"""Functions of dates and timestamps. The session zone is UTC; `now()` is the epoch's."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.coercions import computed, converted, is_float, is_integer
from streamling.plan.sql.functions.signature import ANY, LITERAL_TEXT, POSITION, TIME, Function, Parameter, form
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.sql.values import Refusal, Value, string_literal
from streamling.plan.types import DATE, FLOAT64, INT32, INT64, NULL, STRING, TIME64, TIMESTAMP, TIMESTAMP_UTC, DataType

NOW = ":epoch_now"
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


def _word(value: Value, known: Sequence[str]) -> str:
    word = str(value.constant).lower()
    singular = word if word in known else word.removesuffix("s")
    if singular not in known:
        raise Refusal(f"'{value.constant}' is not one of {', '.join(known)}")
    return singular


def _date_trunc(arguments: Sequence[Value]) -> Value:
    unit, time = arguments
    type_ = TIMESTAMP if time.type == DATE else time.type
    instant = f"date_trunc({string_literal(_word(unit, _UNITS))}, {time.text})"
    return Value(instant if type_.zone else f"CAST({instant} AS TIMESTAMP_NTZ)", type_, time.nullable)


def _date_part(arguments: Sequence[Value]) -> Value:
    part, time = arguments
    template, type_ = _PARTS[_word(part, tuple(_PARTS))]
    moment = converted(time, TIMESTAMP) if time.type == DATE else time
    return Value(template.format(moment.text), type_, time.nullable)


def _timestamp_from(unit: str) -> Function:
    """A number counts units since 1970; a text is read; finer digits than the unit are cut off."""

    def build(arguments: Sequence[Value]) -> Value:
        value = computed(arguments[0])
        if value.type in (STRING, NULL) or value.type.kind in ("timestamp", "date32"):
            return _cut(converted(value, value.type if value.type.zone else TIMESTAMP), unit)
        if is_integer(value.type) or (is_float(value.type) and unit == "seconds"):
            instant = f"timestamp_{unit}({value.text})"
            return Value(f"CAST({instant} AS TIMESTAMP_NTZ)", TIMESTAMP, value.nullable)
        raise Refusal(f"`{name}(value)` does not accept {value.type}")

    name = f"to_timestamp_{unit}"
    return Function(f"{name}(value)", (ANY,), build)


def _cut(value: Value, unit: str) -> Value:
    if unit == "micros":
        return value
    word = {"seconds": "second", "millis": "millisecond"}[unit]
    text = f"CAST(date_trunc('{word}', {value.text}) AS {spark_type(value.type)})"
    return Value(text, value.type, value.nullable)


def _to_timestamp(arguments: Sequence[Value]) -> Value:
    unit = "seconds" if is_integer(arguments[0].type) or is_float(arguments[0].type) else "micros"
    return _timestamp_from(unit).build(arguments)


def _to_unixtime(arguments: Sequence[Value]) -> Value:
    value = computed(arguments[0])
    if is_integer(value.type):
        return converted(value, INT64)
    moment = converted(value, TIMESTAMP_UTC)
    return Value(f"unix_seconds({moment.text})", INT64, value.nullable)


def _to_date(arguments: Sequence[Value]) -> Value:
    value = computed(arguments[0])
    if is_integer(value.type):
        days = POSITION.admit(value)
        return Value(f"date_from_unix_date({days.text})", DATE, value.nullable)
    return converted(value, DATE)


def _whole_number(value: Value) -> Value:
    if not is_integer(value.type) and value.type != NULL:
        raise Refusal(f"expected an integer, got {value.type}")
    return converted(value, INT64)


_CURRENT_TIMESTAMP = Function("now()", (), lambda _: Value(NOW, TIMESTAMP_UTC, nullable=False), reads_clock=True)
_CURRENT_DATE = Function(
    "current_date()", (), lambda _: Value(f"CAST({NOW} AS DATE)", DATE, nullable=False), reads_clock=True
)
_DATE_PART = Function("date_part(part, time)", (LITERAL_TEXT, TIME), _date_part)
_SECONDS = Parameter("an integer", _whole_number)

FUNCTIONS: dict[str, Function] = {
    "now": _CURRENT_TIMESTAMP,
    "current_timestamp": _CURRENT_TIMESTAMP,
    "current_date": _CURRENT_DATE,
    "today": _CURRENT_DATE,
    "date_trunc": Function("date_trunc(unit, time)", (LITERAL_TEXT, TIME), _date_trunc),
    "date_part": _DATE_PART,
    "datepart": _DATE_PART,
    "to_timestamp": Function("to_timestamp(value)", (ANY,), _to_timestamp),
    "to_timestamp_seconds": _timestamp_from("seconds"),
    "to_timestamp_millis": _timestamp_from("millis"),
    "to_timestamp_micros": _timestamp_from("micros"),
    "to_unixtime": Function("to_unixtime(time)", (ANY,), _to_unixtime),
    "to_date": Function("to_date(value)", (ANY,), _to_date),
    "from_unixtime": Function(
        "from_unixtime(seconds)", (_SECONDS,), form("CAST(timestamp_seconds({0}) AS TIMESTAMP_NTZ)", TIMESTAMP)
    ),
}
