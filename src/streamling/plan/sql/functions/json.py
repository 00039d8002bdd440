"""Functions for JSON text. A path must be a literal made of `$`, `.key`, `[n]` and `['key']`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamling.plan.sql.coercions import cast_to
from streamling.plan.sql.functions.signature import ANY, LITERAL_TEXT, TEXT, Function, Parameter, unless_null
from streamling.plan.sql.json_paths import spark_path
from streamling.plan.sql.json_texts import (
    compact_json,
    first_character,
    is_container,
    is_json,
    json_of,
    quote_json,
)
from streamling.plan.sql.values import Refusal, Value, string_literal
from streamling.plan.types import BOOLEAN, NULL, STRING, list_of


def _error(message: str) -> str:
    return f"raise_error({string_literal(message)})"


def _word(value: Value, what: str, known: Sequence[str]) -> str:
    word = " ".join(str(value.constant).upper().split())
    if word not in known:
        raise Refusal(f"{what} must be one of {', '.join(known)}, not '{value.constant}'")
    return word


def _parse(name: str, *, safe: bool = False, flag: bool = True) -> Function:
    """Empty text gives NULL. Text that is not JSON gives NULL if `safe`, else it is an error of the row."""

    def build(arguments: Sequence[Value]) -> Value:
        text = arguments[0].text
        otherwise = "NULL" if safe else _error(f"{name}: the text is not JSON")
        blank = rf"regexp_replace({text}, '[ \\t\\n\\r]+', '') = ''"
        whole = f"CASE WHEN {blank} THEN NULL WHEN {is_json(text)} THEN {compact_json(text)} ELSE {otherwise} END"
        return Value(f"CASE WHEN {text} IS NOT NULL THEN {whole} END", STRING)

    usage = f"{name}(text[, flag])" if flag else f"{name}(text)"
    return Function(usage, (TEXT, ANY) if flag else (TEXT,), build, optional=1 if flag else 0)


def _quote(arguments: Sequence[Value]) -> Value:
    """Escapes `/` and characters beyond ASCII, which Spark does not; `\\uXXXX` is a UTF-16 unit, as in JSON."""
    text = arguments[0].text
    slashes = rf"replace({quote_json(text)}, '/', '\\/')"
    units = r"concat('\\u', regexp_replace(lower(hex(encode(c, 'UTF-16BE'))), '(....)(....)', '$1\\\\u$2'))"
    escaped = rf"transform(split({slashes}, ''), c -> CASE WHEN ascii(c) > 126 THEN {units} ELSE c END)"
    return Value(f"array_join({escaped}, '')", STRING, arguments[0].nullable)


def _unquote(arguments: Sequence[Value]) -> Value:
    text = arguments[0].text
    inside = f"get_json_object(concat('[', {text}, ']'), '$[0]')"
    is_string = f"char_length({text}) > 1 AND startswith({text}, '\"') AND endswith({text}, '\"') AND {is_json(text)}"
    return Value(f"CASE WHEN {is_string} THEN {inside} ELSE {text} END", STRING, arguments[0].nullable)


_KINDS = {
    "VALUE": "true",
    "OBJECT": "{0} = '{{'",
    "ARRAY": "{0} = '['",
    "SCALAR": "{0} NOT IN ('{{', '[')",
}


def _is_json(arguments: Sequence[Value]) -> Value:
    text = arguments[0].text
    kind = _word(arguments[1], "the type", tuple(_KINDS)) if len(arguments) > 1 else "VALUE"
    test = _KINDS[kind].format(first_character(text))
    return Value(f"({is_json(text)} AND {test})", BOOLEAN, nullable=False)


def _exists(arguments: Sequence[Value]) -> Value:
    text, path, *mode = arguments
    on_error = _word(mode[0], "the mode on error", ("FALSE", "TRUE", "UNKNOWN", "ERROR")) if mode else "FALSE"
    otherwise = {"UNKNOWN": "NULL", "ERROR": _error("json_exists: the text is not JSON")}.get(on_error, on_error)
    exists = f"get_json_object({text.text}, {path.text}) IS NOT NULL"
    whole = f"CASE WHEN {is_json(text.text)} THEN {exists} ELSE {otherwise} END"
    return Value(unless_null((text, path), whole), BOOLEAN, text.nullable or on_error == "UNKNOWN")


_MODES = ("NULL", "ERROR", "DEFAULT")


def _value(arguments: Sequence[Value]) -> Value:
    """A scalar as text; numbers keep all their digits, as they are not read as floating point."""
    text, path, *rest = arguments
    if rest and len(rest) != 5:
        raise Refusal("`json_value` needs 2 or 7 arguments")
    on_empty = on_error = "CAST(NULL AS STRING)"
    if rest:
        _word(rest[0], "the type returned", ("STRING", "VARCHAR", "CHAR"))
        on_empty = _otherwise("json_value: nothing at the path", rest[1], rest[2])
        on_error = _otherwise("json_value: the text is not JSON", rest[3], rest[4])
    at = f"try_variant_get(try_parse_json({text.text}), {path.text}, 'variant')"
    kind = f"schema_of_variant({at})"
    scalar = f"{kind} <> 'VOID' AND NOT startswith({kind}, 'OBJECT') AND NOT startswith({kind}, 'ARRAY')"
    scalar_text = f"CASE WHEN {scalar} THEN CAST({at} AS STRING) ELSE {on_empty} END"
    whole = f"CASE WHEN {is_json(text.text)} THEN {scalar_text} ELSE {on_error} END"
    return Value(unless_null((text, path), whole), STRING)


def _otherwise(failure: str, mode: Value, default: Value) -> str:
    word = _word(mode, "a mode", _MODES)
    if word == "DEFAULT":
        return TEXT.admit(default).text
    return _error(failure) if word == "ERROR" else "CAST(NULL AS STRING)"


_WRAPPERS = {
    "WITHOUT ARRAY": "CASE WHEN {container} THEN {json_text} END",
    "WITH CONDITIONAL ARRAY": "CASE WHEN {container} THEN {json_text} ELSE concat('[', {scalar}, ']') END",
    "WITH UNCONDITIONAL ARRAY": "concat('[', CASE WHEN {container} THEN {json_text} ELSE {scalar} END, ']')",
}
_QUERY_MODES = ("NULL", "EMPTY ARRAY", "EMPTY OBJECT", "ERROR")


def _query(arguments: Sequence[Value]) -> Value:
    """An object or array as text; with a wrapper, also a scalar in an array."""
    text, path, *rest = arguments
    if rest and len(rest) != 4:
        raise Refusal("`json_query` needs 2 or 6 arguments")
    wrapper, on_empty, on_error, returned = "WITHOUT ARRAY", "NULL", "NULL", "STRING"
    if rest:
        returned = _word(rest[0], "the type returned", ("STRING", "ARRAY"))
        wrapper = _wrapper(rest[1])
        on_empty, on_error = (_word(mode, "a mode", _QUERY_MODES) for mode in rest[2:])
    json_text = f"get_json_object({text.text}, {path.text})"
    at = f"schema_of_variant(try_variant_get(try_parse_json({text.text}), {path.text}, 'variant'))"
    container = f"(startswith({at}, 'OBJECT') OR startswith({at}, 'ARRAY'))"
    scalar = f"CASE WHEN {at} = 'STRING' THEN {quote_json(json_text)} ELSE {json_text} END"
    result = _WRAPPERS[wrapper].format(container=container, json_text=json_text, scalar=scalar)
    empty = _instead("json_query: nothing at the path", on_empty)
    broken = _instead("json_query: the text is not JSON", on_error)
    whole = f"CASE WHEN {is_json(text.text)} THEN coalesce({result}, {empty}) ELSE {broken} END"
    whole = unless_null((text, path), whole)
    if returned == "ARRAY":
        return Value(f"from_json({whole}, 'array<string>')", list_of(STRING))
    return Value(whole, STRING)


def _wrapper(value: Value) -> str:
    word = " ".join(str(value.constant).upper().replace("WRAPPER", "").split())
    full = word if word.endswith("ARRAY") else f"{word} ARRAY"
    if full not in _WRAPPERS:
        raise Refusal(f"the wrapper must be one of {', '.join(_WRAPPERS)}, not '{value.constant}'")
    return full


def _instead(failure: str, mode: str) -> str:
    return {"ERROR": _error(failure), "EMPTY ARRAY": "'[]'", "EMPTY OBJECT": "'{}'"}.get(mode, "CAST(NULL AS STRING)")


def _embed(value: Value) -> str:
    """The JSON of a value; text that is a JSON object or array is embedded as JSON."""
    if value.type != STRING:
        return json_of(value)
    holds = f"{is_json(value.text)} AND {is_container(value.text)}"
    return f"CASE WHEN {holds} THEN {compact_json(value.text)} ELSE {quote_json(value.text)} END"


def _array(*, absent: bool) -> Callable[[Sequence[Value]], Value]:
    def build(arguments: Sequence[Value]) -> Value:
        parts = [_embed(value) if absent else f"coalesce({_embed(value)}, 'null')" for value in arguments]
        # concat_ws skips NULLs.
        listed = ", ".join(("','", *parts))
        return Value(f"concat('[', concat_ws({listed}), ']')", STRING, nullable=False)

    return build


def _object(name: str, *, absent: bool) -> Function:
    def build(arguments: Sequence[Value]) -> Value:
        if len(arguments) % 2:
            raise Refusal(f"`{name}(key, value, ..)` needs pairs of arguments")
        members: list[str] = ["','"]
        for key, value in zip(arguments[::2], arguments[1::2], strict=True):
            label = f"coalesce({quote_json(TEXT.admit(key).text)}, {_error(f'{name}: a key is NULL')})"
            json = _embed(value) if absent else f"coalesce({_embed(value)}, 'null')"
            members.append(f"concat({label}, ':', {json})")
        return Value(f"concat('{{', concat_ws({', '.join(members)}), '}}')", STRING, nullable=False)

    return Function(f"{name}(key, value, ..)", (ANY,), build, optional=1, variadic=True)


def _path(value: Value) -> Value:
    if value.type == NULL:
        return cast_to(value, STRING)
    return Value(string_literal(spark_path(str(LITERAL_TEXT.admit(value).constant))), STRING, nullable=False)


_PATH = Parameter("a path", _path)
_ARGUMENTS = (TEXT, _PATH, LITERAL_TEXT, LITERAL_TEXT, ANY, LITERAL_TEXT, ANY)

_BY_NAME: dict[str, Function] = {
    "json_quote": Function("json_quote(text)", (TEXT,), _quote),
    "json_unquote": Function("json_unquote(text)", (TEXT,), _unquote),
    "json": _parse("json", flag=False),
    "parse_json": _parse("parse_json"),
    "try_parse_json": _parse("try_parse_json", safe=True),
    "is_json": Function("is_json(text[, type])", (TEXT, LITERAL_TEXT), _is_json, optional=1),
    "json_exists": Function("json_exists(json, path[, on_error])", (TEXT, _PATH, LITERAL_TEXT), _exists, optional=1),
    "json_value": Function(
        "json_value(json, path[, returning, on_empty, default, on_error, default])", _ARGUMENTS, _value, optional=5
    ),
    "json_query": Function(
        "json_query(json, path[, returning, wrapper, on_empty, on_error])",
        (TEXT, _PATH, *(LITERAL_TEXT,) * 4),
        _query,
        optional=4,
    ),
    "json_array": Function("json_array(value, ..)", (ANY,), _array(absent=False), optional=1, variadic=True),
    "json_array_absent_on_null": Function(
        "json_array_absent_on_null(value, ..)", (ANY,), _array(absent=True), optional=1, variadic=True
    ),
    "json_object": _object("json_object", absent=False),
    "json_object_absent_on_null": _object("json_object_absent_on_null", absent=True),
    "json_string": Function("json_string(value)", (ANY,), lambda a: Value(json_of(a[0]), STRING, a[0].nullable)),
}

# Each text is used at least twice: it is tested for being JSON before it is parsed.
FUNCTIONS: dict[str, Function] = {name: replace(function, once=True) for name, function in _BY_NAME.items()}
