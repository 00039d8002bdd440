"""Functions that search, split and encode text."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.functions.signature import AS_TEXT, INTEGER, TEXT, Function, form, unless_null
from streamling.plan.sql.values import Value, any_nullable, string_literal
from streamling.plan.types import BINARY, INT64, NULL, STRING, list_of


def literal_regexp(delimiter: Value) -> str:
    """A Java regular expression that matches exactly this text."""
    if isinstance(delimiter.constant, str):
        return string_literal("".join(f"\\{c}" if not (c.isalnum() or c.isspace()) else c for c in delimiter.constant))
    return rf"concat('\\Q', replace({delimiter.text}, '\\E', '\\E\\\\E\\Q'), '\\E')"


def split_text(text: Value, delimiter: Value, *, empty: str) -> str:
    """The parts of a text, including empty ones; `empty` is the list for an empty delimiter."""
    parts = f"split({text.text}, {literal_regexp(delimiter)}, -1)"
    if isinstance(delimiter.constant, str):
        return parts if delimiter.constant else empty
    return f"CASE WHEN {delimiter.text} = '' THEN {empty} ELSE {parts} END"


def characters(text: str) -> str:
    """A list of the characters; for an empty text Spark's `split` gives one empty part."""
    return f"filter(split({text}, ''), c -> c <> '')"


def _split(arguments: Sequence[Value]) -> Value:
    text, delimiter = arguments
    parts = split_text(text, delimiter, empty=characters(text.text))
    return Value(parts, list_of(STRING), any_nullable(arguments))


def _split_index(arguments: Sequence[Value]) -> Value:
    text, delimiter, index = arguments
    parts = split_text(text, delimiter, empty=f"array({text.text})")
    place = f"try_cast({index.text} + 1L AS INT)"
    return Value(f"CASE WHEN {index.text} >= 0 THEN try_element_at({parts}, {place}) END", STRING)


def _string_to_array(arguments: Sequence[Value]) -> Value:
    """A NULL delimiter splits into characters, an empty text has no parts."""
    text, delimiter, *rest = arguments
    parts = split_text(text, delimiter, empty=f"array({text.text})")
    if delimiter.type == NULL:
        parts = characters(text.text)
    elif delimiter.nullable:
        parts = f"CASE WHEN {delimiter.text} IS NULL THEN {characters(text.text)} ELSE {parts} END"
    parts = f"CASE WHEN {text.text} = '' THEN array() WHEN {text.text} IS NOT NULL THEN {parts} END"
    if rest:
        parts = f"transform({parts}, x -> nullif(x, {rest[0].text}))"
    return Value(parts, list_of(STRING), text.nullable)


def _locate(arguments: Sequence[Value]) -> Value:
    part, text, *rest = arguments
    start = f"CAST({rest[0].text} AS INT)" if rest else "1"
    position = f"CAST(locate({part.text}, {text.text}, {start}) AS BIGINT)"
    return Value(unless_null(arguments, position), INT64, any_nullable(arguments))


def _instr(arguments: Sequence[Value]) -> Value:
    """With a negative start, the search goes backwards from that position; 0 if the part is not found."""
    text, part, *rest = arguments
    start = rest[0] if rest else Value("1L", INT64, nullable=False, constant=1)
    size = f"greatest(char_length({text.text}), 1)"
    here = f"substring({text.text}, i, char_length({part.text})) = {part.text}"
    forwards = f"filter(sequence(1, {size}), i -> i >= {start.text} AND {here})"
    backwards = f"filter(sequence({size}, 1, -1), i -> i <= char_length({text.text}) + {start.text} + 1 AND {here})"
    places = forwards if start.constant == 1 else f"CASE WHEN {start.text} > 0 THEN {forwards} ELSE {backwards} END"
    if len(rest) < 2:
        position = f"coalesce(CAST(try_element_at({places}, 1) AS BIGINT), 0L)"
    else:
        which = f"try_cast({rest[1].text} AS INT)"
        position = (
            f"CASE WHEN {rest[1].text} >= 1 THEN coalesce(CAST(try_element_at({places}, {which}) AS BIGINT), 0L) END"
        )
    if start.constant != 1:
        position = f"CASE WHEN {start.text} = 0 THEN 0L ELSE {position} END"
    return Value(unless_null(arguments, position), INT64, any_nullable(arguments) or len(rest) > 1)


def _elt(arguments: Sequence[Value]) -> Value:
    index, *values = arguments
    listed = ", ".join(value.text for value in values)
    place = f"try_cast({index.text} AS INT)"
    return Value(f"CASE WHEN {index.text} >= 1 THEN try_element_at(array({listed}), {place}) END", STRING)


def _parse_url(arguments: Sequence[Value]) -> Value:
    url, part, *key = arguments
    listed = ", ".join((url.text, f"upper({part.text})", *(k.text for k in key)))
    return Value(f"try_parse_url({listed})", STRING)


def _translate(arguments: Sequence[Value]) -> Value:
    """A NULL set of characters counts as an empty set."""
    text, from_, to = arguments
    sets = ", ".join(f"coalesce({v.text}, '')" if v.nullable else v.text for v in (from_, to))
    return Value(f"translate({text.text}, {sets})", STRING, text.nullable)


_BIN = "CASE WHEN {0} < 0 THEN concat('-', coalesce(bin(try_subtract(0L, {0})), bin({0}))) ELSE bin({0}) END"
_TRANSLATE = Function("translate(text, from, to)", (TEXT, TEXT, TEXT), _translate)

FUNCTIONS: dict[str, Function] = {
    "split": Function("split(text, delimiter)", (TEXT, TEXT), _split),
    "split_index": Function("split_index(text, delimiter, index)", (TEXT, TEXT, INTEGER), _split_index),
    "string_to_array": Function(
        "string_to_array(text, delimiter[, null])", (TEXT, TEXT, TEXT), _string_to_array, optional=1
    ),
    "locate": Function("locate(part, text[, start])", (TEXT, TEXT, INTEGER), _locate, optional=1),
    "instr": Function(
        "instr(text, part[, start[, occurrence]])", (TEXT, TEXT, INTEGER, INTEGER), _instr, optional=2, once=True
    ),
    "bin": Function("bin(integer)", (INTEGER,), form(_BIN, STRING)),
    "elt": Function("elt(index, value, ..)", (INTEGER, AS_TEXT), _elt, variadic=True),
    "parse_url": Function("parse_url(url, part[, key])", (TEXT, TEXT, TEXT), _parse_url, optional=1),
    "translate": _TRANSLATE,
    "translate3": _TRANSLATE,
    "unhex": Function("unhex(text)", (TEXT,), form("unhex({0})", BINARY, nullable=True)),
    "url_encode": Function("url_encode(text)", (TEXT,), form("url_encode({0})")),
    "url_decode": Function("url_decode(text)", (TEXT,), form("try_url_decode({0})", nullable=True)),
}
