"""Text functions. Positions and lengths count characters (Unicode code points)."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.functions.signature import AS_TEXT, INTEGER, POSITION, TEXT, Function, form
from streamling.plan.sql.values import Value, any_nullable, string_literal, text_value
from streamling.plan.types import BOOLEAN, INT32, STRING


def _concat(arguments: Sequence[Value]) -> Value:
    parts = [f"coalesce({a.text}, '')" if a.nullable else a.text for a in arguments]
    return Value(f"concat({', '.join(parts)})", STRING, nullable=False)


def _concat_ws(arguments: Sequence[Value]) -> Value:
    return Value(f"concat_ws({', '.join(a.text for a in arguments)})", STRING, arguments[0].nullable)


def _substr(arguments: Sequence[Value]) -> Value:
    """Positions before the first character count: substr('abc', -1, 3) covers -1, 0 and 1, which gives 'a'."""
    text, start, *rest = arguments
    first = _at_least(start, 1)
    nullable = any_nullable(arguments)
    if not rest:
        return Value(f"substring({text.text}, {first})", STRING, nullable)
    length = rest[0]
    if isinstance(start.constant, int) and isinstance(length.constant, int) and length.constant >= 0:
        count = max(0, start.constant + length.constant - max(start.constant, 1))
        return Value(f"substring({text.text}, {first}, {count})", STRING, nullable)
    refusal = string_literal("substr: the length is negative")
    part = f"substring({text.text}, {first}, {start.text} + {length.text} - {first})"
    return Value(f"CASE WHEN {length.text} < 0 THEN raise_error({refusal}) ELSE {part} END", STRING, nullable)


def _at_least(value: Value, least: int) -> str:
    if isinstance(value.constant, int):
        return str(max(value.constant, least))
    at_least = f"greatest({value.text}, {least})"
    # greatest() skips NULL, addition does not: NULL stays NULL.
    return f"({at_least} + 0 * {value.text})" if value.nullable else at_least


def _left(arguments: Sequence[Value]) -> Value:
    """With a negative number, all but that many characters of the other end."""
    text, count = arguments
    nullable = any_nullable(arguments)
    if isinstance(count.constant, int) and count.constant >= 0:
        return Value(f"left({text.text}, {count.text})", STRING, nullable)
    rest = f"char_length({text.text}) + {count.text}"
    return Value(f"left({text.text}, CASE WHEN {count.text} < 0 THEN {rest} ELSE {count.text} END)", STRING, nullable)


def _right(arguments: Sequence[Value]) -> Value:
    text, count = arguments
    nullable = any_nullable(arguments)
    if isinstance(count.constant, int) and count.constant >= 0:
        return Value(f"right({text.text}, {count.text})", STRING, nullable)
    rest = f"char_length({text.text}) + {count.text}"
    return Value(f"right({text.text}, CASE WHEN {count.text} < 0 THEN {rest} ELSE {count.text} END)", STRING, nullable)


def _trim(side: str) -> Function:
    def build(arguments: Sequence[Value]) -> Value:
        text = arguments[0].text
        characters = arguments[1].text if len(arguments) > 1 else "' '"
        return Value(f"trim({side} {characters} FROM {text})", STRING, any_nullable(arguments))

    name = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
    return Function(f"{name}(text[, characters])", (TEXT, TEXT), build, optional=1)


def _pad(name: str) -> Function:
    def build(arguments: Sequence[Value]) -> Value:
        fill = arguments[2] if len(arguments) > 2 else text_value(" ")
        text = f"{name}({arguments[0].text}, {arguments[1].text}, {fill.text})"
        return Value(text, STRING, any_nullable(arguments))

    return Function(f"{name}(text, length[, fill])", (TEXT, POSITION, TEXT), build, optional=1)


# Words are runs of letters and digits. Spark's initcap separates words only at spaces.
_INITCAP = (
    r"array_join(transform(regexp_extract_all(lower({0}), "
    r"'[\\p{{IsAlphabetic}}\\p{{N}}]+|[^\\p{{IsAlphabetic}}\\p{{N}}]+', 0), "
    r"w -> concat(upper(left(w, 1)), substring(w, 2))), '')"
)

_LENGTH = Function("length(text)", (TEXT,), form("char_length({0})", INT32))
_SUBSTR = Function("substr(text, start[, length])", (TEXT, POSITION, POSITION), _substr, optional=1)
_STARTS_WITH = Function("starts_with(text, start)", (TEXT, TEXT), form("startswith({0}, {1})", BOOLEAN))
_ENDS_WITH = Function("ends_with(text, end)", (TEXT, TEXT), form("endswith({0}, {1})", BOOLEAN))
_LOWER = Function("lower(text)", (TEXT,), form("lower({0})"))
_UPPER = Function("upper(text)", (TEXT,), form("upper({0})"))
_TO_HEX = Function("to_hex(integer)", (INTEGER,), form("lower(hex({0}))", STRING))
_STRPOS = Function("strpos(text, part)", (TEXT, TEXT), form("instr({0}, {1})", INT32))

FUNCTIONS: dict[str, Function] = {
    "upper": _UPPER,
    "uppercase": _UPPER,
    "lower": _LOWER,
    "lowercase": _LOWER,
    "length": _LENGTH,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "charlength": _LENGTH,
    "octet_length": Function("octet_length(text)", (TEXT,), form("octet_length({0})", INT32)),
    "bit_length": Function("bit_length(text)", (TEXT,), form("bit_length({0})", INT32)),
    "contains": Function("contains(text, part)", (TEXT, TEXT), form("contains({0}, {1})", BOOLEAN)),
    "levenshtein": Function("levenshtein(text, other)", (TEXT, TEXT), form("levenshtein({0}, {1})", INT32)),
    "trim": _trim("BOTH"),
    "btrim": _trim("BOTH"),
    "ltrim": _trim("LEADING"),
    "rtrim": _trim("TRAILING"),
    "substr": _SUBSTR,
    "substring": _SUBSTR,
    "left": Function("left(text, count)", (TEXT, POSITION), _left),
    "right": Function("right(text, count)", (TEXT, POSITION), _right),
    "concat": Function("concat(value, ..)", (AS_TEXT,), _concat, variadic=True),
    "concat_ws": Function("concat_ws(separator, value, ..)", (TEXT, AS_TEXT), _concat_ws, variadic=True),
    "replace": Function("replace(text, from, to)", (TEXT, TEXT, TEXT), form("replace({0}, {1}, {2})")),
    "reverse": Function("reverse(text)", (TEXT,), form("reverse({0})")),
    "repeat": Function("repeat(text, times)", (TEXT, POSITION), form("repeat({0}, {1})")),
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "split_part": Function(
        "split_part(text, delimiter, number)", (TEXT, TEXT, POSITION), form("split_part({0}, {1}, {2})")
    ),
    "starts_with": _STARTS_WITH,
    "startswith": _STARTS_WITH,
    "ends_with": _ENDS_WITH,
    "endswith": _ENDS_WITH,
    "strpos": _STRPOS,
    "initcap": Function("initcap(text)", (TEXT,), form(_INITCAP)),
    "to_hex": _TO_HEX,
    "hex": _TO_HEX,
    "ascii": Function("ascii(text)", (TEXT,), form("ascii({0})", INT32)),
    "chr": Function("chr(code)", (INTEGER,), form("decode(unhex(lpad(hex({0}), 8, '0')), 'UTF-32')", STRING)),
}
