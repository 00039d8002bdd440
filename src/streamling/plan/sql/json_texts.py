"""JSON in Spark SQL: values as JSON text, and tests of JSON text.

Spark's `to_json` does not follow our rules for bytes, times and NaN, so values are written here, type by type. Its
parsers stop after the first value of a text, so a text is tested with an end mark appended to it.
"""

from __future__ import annotations

from streamling.plan.sql.casts import cast
from streamling.plan.sql.coercions import is_float
from streamling.plan.sql.spark_types import computed_type
from streamling.plan.sql.values import Refusal, Value, string_literal
from streamling.plan.types import NULL, STRING, DataType

_NUMBERS = ("int8", "int16", "int32", "int64", "decimal", "boolean")
_END_MARK = "streamling-end"


def json_of(value: Value, depth: int = 0) -> str:
    """The Spark text for the JSON of a value; NULL gives NULL."""
    type_ = computed_type(value.type)
    if value.type == NULL:
        return "CAST(NULL AS STRING)"
    if type_.kind == "decimal" and type_.wide:
        return value.text
    if type_ == STRING or type_.wide:
        return quote_json(value.text)
    if type_.kind in _NUMBERS:
        return f"CAST({value.text} AS STRING)"
    if is_float(type_):
        return _float(value.text)
    if type_.kind == "binary":
        return f"concat('\"', lower(hex({value.text})), '\"')"
    if type_.kind in ("date32", "timestamp", "time64"):
        return f"concat('\"', {cast(Value(value.text, type_), STRING).text}, '\"')"
    return _nested(value.text, type_, depth)


def _float(text: str) -> str:
    strange = f"isnan({text}) OR abs({text}) = CAST('Infinity' AS DOUBLE)"
    return f"CASE WHEN {strange} THEN 'null' ELSE CAST({text} AS STRING) END"


def _nested(text: str, type_: DataType, depth: int) -> str:
    item = f"x{depth}"
    if type_.kind == "list" and type_.item is not None:
        parts = f"transform({text}, {item} -> {json_or_null(Value(item, type_.item), depth + 1)})"
        return f"concat('[', array_join({parts}, ','), ']')"
    if type_.kind == "map" and type_.item is not None:
        key = quote_json(cast(Value(f"{item}.key", type_.key or STRING), STRING).text)
        entry = f"concat({key}, ':', {json_or_null(Value(f'{item}.value', type_.item), depth + 1)})"
        return f"concat('{{', array_join(transform(map_entries({text}), {item} -> {entry}), ','), '}}')"
    if type_.kind == "struct":
        members = [
            f"{quote_json(string_literal(f.name))}, ':', "
            f"{json_or_null(Value(f'{text}[{string_literal(f.name)}]', f.type, f.nullable), depth)}"
            for f in type_.fields
        ]
        listed = ", ',', ".join(members)
        whole = f"concat('{{', {listed}, '}}')" if members else "'{}'"
        return f"CASE WHEN {text} IS NOT NULL THEN {whole} END"
    raise Refusal(f"values of type {type_} cannot be written as JSON")


def json_or_null(value: Value, depth: int = 0) -> str:
    """The JSON of a value, `null` for NULL."""
    text = json_of(value, depth)
    return f"coalesce({text}, 'null')" if value.nullable or is_float(value.type) else text


def quote_json(text: str) -> str:
    """A text as a JSON string."""
    listed = f"to_json(array({text}))"
    return f"CASE WHEN {text} IS NOT NULL THEN substring({listed}, 2, char_length({listed}) - 2) END"


def is_json(text: str) -> str:
    """True if a text is exactly one JSON value, else false; never NULL."""
    variant = f"try_parse_json(concat('[', {text}, ',\"{_END_MARK}\"]'))"
    ends = f"try_variant_get({variant}, '$[1]', 'string') <=> '{_END_MARK}'"
    return f"({ends} AND try_variant_get({variant}, '$[2]', 'variant') IS NULL)"


def is_container(text: str) -> str:
    """Whether a JSON text is an object or an array."""
    return f"({first_character(text)} IN ('{{', '['))"


def first_character(text: str) -> str:
    return rf"left(regexp_replace({text}, '^[ \\t\\n\\r]+', ''), 1)"


def compact_json(text: str) -> str:
    """JSON text without whitespace between tokens; digits and the order of keys are unchanged."""
    string = r'"[^"\\\\]*+(?:\\\\.[^"\\\\]*+)*+"'
    return rf"regexp_replace({text}, '({string})|[ \\t\\n\\r]+', '$1')"
