"""Casts: which ones exist, and their Spark text.

Spark runs in ANSI mode, so a cast that fails (overflow, text that cannot be parsed) is an error of the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from streamling.errors import SQL_UNSUPPORTED
from streamling.plan.flat_types import UnknownType, flat_type
from streamling.plan.sql.spark_types import MAX_PRECISION, check_computable, computed_type, spark_type
from streamling.plan.sql.values import Refusal, Value, string_literal
from streamling.plan.sql.wide import sized_decimal, wide_cast
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MOST_DIGITS,
    NULL,
    STRING,
    TIME64,
    TIMESTAMP,
    TIMESTAMP_UTC,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    list_of,
)

TYPE_NAMES: dict[exp.DType, DataType] = {
    exp.DType.TEXT: STRING,
    exp.DType.VARCHAR: STRING,
    exp.DType.CHAR: STRING,
    exp.DType.BIGINT: INT64,
    exp.DType.INT: INT32,
    exp.DType.SMALLINT: INT16,
    exp.DType.TINYINT: INT8,
    exp.DType.DOUBLE: FLOAT64,
    exp.DType.FLOAT: FLOAT32,
    exp.DType.BOOLEAN: BOOLEAN,
    exp.DType.DATE: DATE,
    exp.DType.TIMESTAMP: TIMESTAMP,
    exp.DType.TIMESTAMPTZ: TIMESTAMP_UTC,
    exp.DType.VARBINARY: BINARY,
    exp.DType.TIME: TIME64,
    exp.DType.UTINYINT: UINT8,
    exp.DType.USMALLINT: UINT16,
    exp.DType.UINT: UINT32,
    exp.DType.UBIGINT: UINT64,
}
_NUMBERS = ("int8", "int16", "int32", "int64", "float32", "float64", "decimal")
_INTEGERS = _NUMBERS[:4]


def named_type(node: exp.DataType) -> DataType:
    """The type named in a cast."""
    kind = node.this
    if kind == exp.DType.DECIMAL:
        return _decimal(node)
    if kind == exp.DType.ARRAY and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.DataType):
        return list_of(named_type(node.expressions[0]))
    if kind in TYPE_NAMES and (not node.expressions or TYPE_NAMES[kind] == STRING):
        return TYPE_NAMES[kind]
    if kind == exp.DType.USERDEFINED and not node.expressions:
        return arrow_named_type(str(node.args["kind"].name))
    raise Refusal(f"type name `{node.sql()}` is unsupported", condition=SQL_UNSUPPORTED)


def arrow_named_type(name: str) -> DataType:
    """The type with one of Arrow's names: `Int64`, `Timestamp(Second, None)`."""
    try:
        return flat_type(name)
    except UnknownType:
        raise Refusal(f"type name `{name}` is unsupported", condition=SQL_UNSUPPORTED) from None


def _decimal(node: exp.DataType) -> DataType:
    parameters = [int(p.name) for p in node.expressions if p.name.isdigit()]
    if len(parameters) != len(node.expressions) or len(parameters) > 2:
        raise Refusal(f"type name `{node.sql()}` is unsupported", condition=SQL_UNSUPPORTED)
    precision, scale = (*parameters, 0, 0)[:2] if parameters else (MAX_PRECISION, 10)
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise Refusal(
            f"decimal({precision},{scale}) is unsupported: the precision must be from 1 to {MOST_DIGITS}, "
            "and the scale must not be greater than the precision",
            condition=SQL_UNSUPPORTED,
        )
    return sized_decimal(precision, scale)


@dataclass(frozen=True, slots=True)
class _Cast:
    """Writes a Spark cast: `CAST`, or `try_cast`, which gives NULL instead of an error."""

    word: str

    def __call__(self, text: str, type_: DataType) -> str:
        return f"{self.word}({text} AS {spark_type(type_)})"


_Form = Callable[[_Cast, str, DataType], str]


def _plain(cast_: _Cast, text: str, type_: DataType) -> str:
    return cast_(text, type_)


def _text_to_timestamp(cast_: _Cast, text: str, type_: DataType) -> str:
    # A direct cast to TIMESTAMP_NTZ would ignore a zone or offset in the text instead of applying it.
    instant = cast_(text, TIMESTAMP_UTC)
    return instant if type_.zone is not None else cast_(instant, TIMESTAMP)


def _time_to_text(cast_: _Cast, text: str, type_: DataType) -> str:
    """ISO 8601 with `T`, and a fraction of 0, 3 or 6 digits."""
    iso = f"replace({cast_(text, STRING)}, ' ', 'T')"
    three = rf"regexp_replace({iso}, '(\\.\\d|\\.\\d{{4}})$', '$100')"
    return rf"regexp_replace({three}, '(\\.\\d{{2}}|\\.\\d{{5}})$', '$10')"


def _instant_to_text(cast_: _Cast, text: str, type_: DataType) -> str:
    return f"concat({_time_to_text(cast_, text, type_)}, 'Z')"


def _bytes_to_text(cast_: _Cast, text: str, type_: DataType) -> str:
    check = "validate_utf8" if cast_.word == "CAST" else "try_validate_utf8"
    return f"{check}(CAST({text} AS STRING))"


def _forms() -> dict[tuple[str, str], _Form]:
    plain = [(a, b) for a in _NUMBERS for b in _NUMBERS]
    plain += [(a, "string") for a in (*_NUMBERS, "boolean", "date32")]
    plain += [("string", b) for b in (*_NUMBERS, "boolean", "date32", "binary", "time64")]
    plain += [("boolean", b) for b in _INTEGERS] + [(a, "boolean") for a in _INTEGERS]
    plain += [("date32", "timestamp"), ("timestamp", "date32"), ("timestamp", "timestamp"), ("timestamp", "time64")]
    forms: dict[tuple[str, str], _Form] = dict.fromkeys(plain, _plain)
    forms["string", "timestamp"] = _text_to_timestamp
    forms["binary", "string"] = _bytes_to_text
    forms["time64", "string"] = _time_to_text
    return forms


_FORMS = _forms()
_HINTS = {
    ("timestamp", "int64"): "to_unixtime(t) gives seconds since 1970",
    ("int64", "timestamp"): "use to_timestamp_seconds, to_timestamp_millis or to_timestamp_micros by the number's unit",
}


def cast(value: Value, type_: DataType, *, safe: bool = False) -> Value:
    """The value cast to `type_`; `safe`: NULL if the cast of a row fails."""
    if value.type == type_:
        return value
    if value.type == NULL:
        return Value(f"CAST(NULL AS {spark_type(type_)})", type_)
    if type_ == FLOAT64 and isinstance(value.constant, int) and abs(value.constant) < 2**53:
        return Value(_double(value.constant), type_, nullable=False, constant=value.constant)
    if value.type.wide and not type_.wide and type_.kind in _GREATEST:
        return cast(cast(value, computed_type(type_), safe=safe), type_, safe=safe)
    if value.type.wide or type_.wide:
        return wide_cast(value, type_, safe=safe)
    for side in (value.type, type_):
        check_computable(side)
    if not safe:
        _check_literal(value, type_)
    cast_ = _Cast("try_cast" if safe else "CAST")
    source, target = computed_type(value.type), computed_type(type_)
    text = value.text if source == target else _form(source, target)(cast_, value.text, target)
    return Value(_fit(cast_, text, value.type, type_), type_, value.nullable or safe)


_GREATEST = {"uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}
_UNITS = {"s": "second", "ms": "millisecond"}


def _fit(cast_: _Cast, text: str, source: DataType, target: DataType) -> str:
    """A value in the carrier of `target`, checked or truncated to the values of `target`."""
    if source.kind == target.kind == "list" and source.item is not None and target.item is not None:
        item = _fit(cast_, "x", source.item, target.item)
        return text if item == "x" else f"transform({text}, x -> {item})"
    if target.kind in _GREATEST and _GREATEST.get(source.kind, 2**64) > _GREATEST[target.kind]:
        most = f"{_GREATEST[target.kind]}{'BD' if target == UINT64 else 'L'}"
        refusal = f"raise_error({string_literal(f'a value is out of the range of {target}')})"
        outside = refusal if cast_.word == "CAST" else "NULL"
        return f"CASE WHEN {text} < 0 OR {text} > {most} THEN {outside} ELSE {text} END"
    if target.kind == "timestamp" and target.unit in _UNITS and source.unit not in (target.unit, "s"):
        return f"CAST(date_trunc('{_UNITS[target.unit]}', {text}) AS {spark_type(target)})"
    if target.kind == "time32" and source.kind != "time32":
        return f"time_trunc('MILLISECOND', {text})"
    if target.kind == "float16" and source.kind != "float16":
        raise Refusal(f"there is no cast from {source} to {target}", hint="float32 holds every float16")
    if target.length is not None and source.length != target.length:
        raise Refusal(f"there is no cast from {source} to {target}")
    return text


def _double(number: int) -> str:
    return f"{number}D" if number >= 0 else f"({number}D)"


def _form(source: DataType, target: DataType) -> _Form:
    if source.kind == "timestamp" and target == STRING:
        return _time_to_text if source.zone is None else _instant_to_text
    if source.kind == target.kind == "list" and source.item is not None and target.item is not None:
        return _list_form(source.item, target.item)
    form = _FORMS.get((source.kind, target.kind))
    if form is None:
        raise Refusal(f"there is no cast from {source} to {target}", hint=_HINTS.get((source.kind, target.kind)))
    return form


def _list_form(source: DataType, target: DataType) -> _Form:
    if source == NULL:
        return _plain
    item = _form(source, target) if source != target else _plain
    if item is _plain:
        return _plain
    return lambda cast_, text, _: f"transform({text}, x -> {item(cast_, 'x', target)})"


_LITERALS = {
    "date32": re.compile(r"\s*[+-]?\d{4,6}-\d{1,2}-\d{1,2}([ T].*)?\s*"),
    "timestamp": re.compile(r"\s*[+-]?\d{4,6}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?.*)?\s*"),
}


def _check_literal(value: Value, type_: DataType) -> None:
    """Refuses literals that Spark would complete by itself: `2024`, `12:30`."""
    pattern = _LITERALS.get(type_.kind)
    if pattern is not None and isinstance(value.constant, str) and not pattern.fullmatch(value.constant):
        raise Refusal(f"'{value.constant}' is not a valid {type_}")
