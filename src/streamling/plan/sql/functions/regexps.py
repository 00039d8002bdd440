"""Functions for regular expressions. A pattern must be a literal, since it is translated to Java's syntax.

A pattern that is not valid is an error in `regexp_like`; the other functions give NULL. There is no look-around and
there are no back references.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamling.plan.sql.functions.signature import (
    INTEGER,
    LITERAL_INTEGER,
    LITERAL_TEXT,
    TEXT,
    Function,
    Parameter,
    unless_null,
)
from streamling.plan.sql.operators import matches, regexp
from streamling.plan.sql.patterns import groups_of, is_well_formed, java_regexp
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.sql.values import Refusal, Value, any_nullable, string_literal
from streamling.plan.types import INT64, NULL, STRING, DataType, list_of

_Build = Callable[[Sequence[Value]], Value]


def _regexp_like(arguments: Sequence[Value]) -> Value:
    flags = str(arguments[2].constant) if len(arguments) > 2 else ""
    if not set(flags) <= set("ims"):
        raise Refusal(f"'{flags}' has flags other than i, m, s")
    return matches(arguments[0], arguments[1], "".join(sorted(set(flags))))


def _with_pattern(build: _Build, type_: DataType) -> _Build:
    """`build`, or NULL if the pattern is not a valid regular expression."""

    def build_or_null(arguments: Sequence[Value]) -> Value:
        pattern = arguments[1]
        if pattern.type == NULL or (isinstance(pattern.constant, str) and not is_well_formed(pattern.constant)):
            return Value(f"CAST(NULL AS {spark_type(type_)})", type_)
        return build(arguments)

    return build_or_null


def _regexp_replace(arguments: Sequence[Value]) -> Value:
    """Replaces all matches; the replacement is literal text."""
    text, pattern, replacement = arguments
    result = f"regexp_replace({text.text}, {regexp(pattern)}, {_quote(replacement)})"
    return Value(result, STRING, any_nullable(arguments))


def _quote(replacement: Value) -> str:
    """`\\` and `$`, which are special in Java's replacements, are escaped."""
    if isinstance(replacement.constant, str):
        return string_literal(replacement.constant.replace("\\", "\\\\").replace("$", "\\$"))
    return rf"replace(replace({replacement.text}, '\\', '\\\\'), '$', '\\$')"


def _extract(arguments: Sequence[Value]) -> Value:
    text, pattern = arguments[0].text, regexp(arguments[1])
    group, exists = _group(arguments, default=0)
    return Value(
        f"CASE WHEN {exists} AND rlike({text}, {pattern}) THEN regexp_extract({text}, {pattern}, {group}) END", STRING
    )


def _extract_all(arguments: Sequence[Value]) -> Value:
    text, pattern = arguments[0].text, regexp(arguments[1])
    group, exists = _group(arguments, default=1)
    return Value(f"CASE WHEN {exists} THEN regexp_extract_all({text}, {pattern}, {group}) END", list_of(STRING))


def _group(arguments: Sequence[Value], *, default: int) -> tuple[str, str]:
    """The number of a group, and the condition that the pattern has it."""
    most = groups_of(str(arguments[1].constant))
    if len(arguments) < 3 or arguments[2].type == NULL:
        return str(default), "true" if default <= most else "false"
    group = arguments[2]
    if isinstance(group.constant, int):
        return str(group.constant), "true" if 0 <= group.constant <= most else "false"
    number = f"coalesce({group.text}, {default}L)"
    return f"CAST({number} AS INT)", f"{number} BETWEEN 0 AND {most}"


def _substr(arguments: Sequence[Value]) -> Value:
    return Value(f"regexp_substr({arguments[0].text}, {regexp(arguments[1])})", STRING)


def _count(arguments: Sequence[Value]) -> Value:
    text = f"CAST(regexp_count({arguments[0].text}, {regexp(arguments[1])}) AS BIGINT)"
    return Value(text, INT64, any_nullable(arguments))


def _instr(arguments: Sequence[Value]) -> Value:
    """The length of the text before the match: Spark's own function counts UTF-16 units and has no start or occurrence.

    Each match before the requested one is an atomic group, so that it cannot give up characters to a later one.
    """
    text = arguments[0]
    start = arguments[2] if len(arguments) > 2 else Value("1L", INT64, nullable=False, constant=1)
    occurrence = arguments[3].constant if len(arguments) > 3 else 1
    if not isinstance(occurrence, int) or occurrence < 1 or (isinstance(start.constant, int) and start.constant < 1):
        raise Refusal("start and occurrence must be at least 1")
    pattern = java_regexp(str(arguments[1].constant))
    before = f"(?>(?s:.*?)(?:{pattern})){{{occurrence - 1}}}" if occurrence > 1 else ""
    whole = string_literal(f"\\A({before}(?s:.*?))(?:{pattern})")
    refusal = string_literal("regexp_instr: the start is below 1")
    rest = text.text if start.constant == 1 else f"substring({text.text}, CAST({start.text} AS INT))"
    length = f"char_length(regexp_extract({rest}, {whole}, 1))"
    place = f"CASE WHEN rlike({rest}, {whole}) THEN CAST({length} AS BIGINT) + {start.text} ELSE 0L END"
    if not isinstance(start.constant, int):
        place = f"CASE WHEN {start.text} < 1 THEN raise_error({refusal}) ELSE {place} END"
    return Value(unless_null((text, start), place), INT64, any_nullable((text, start)))


def _pattern(value: Value) -> Value:
    """Text; NULL is not cast, so that it stays a literal."""
    return value if value.type == NULL else TEXT.admit(value)


_PATTERN = Parameter("text", _pattern)
_REGEXP_LIKE = Function("regexp_like(text, pattern[, flags])", (TEXT, _PATTERN, LITERAL_TEXT), _regexp_like, optional=1)

FUNCTIONS: dict[str, Function] = {
    "regexp_like": _REGEXP_LIKE,
    "regexp": _REGEXP_LIKE,
    "similar": _REGEXP_LIKE,
    "regexp_replace": Function(
        "regexp_replace(text, pattern, replacement)", (TEXT, _PATTERN, TEXT), _with_pattern(_regexp_replace, STRING)
    ),
    "regexp_extract": Function(
        "regexp_extract(text, pattern[, group])", (TEXT, _PATTERN, INTEGER), _with_pattern(_extract, STRING), optional=1
    ),
    "regexp_extract_all": Function(
        "regexp_extract_all(text, pattern[, group])",
        (TEXT, _PATTERN, INTEGER),
        _with_pattern(_extract_all, list_of(STRING)),
        optional=1,
    ),
    "regexp_substr": Function("regexp_substr(text, pattern)", (TEXT, _PATTERN), _with_pattern(_substr, STRING)),
    "regexp_count": Function("regexp_count(text, pattern)", (TEXT, _PATTERN), _with_pattern(_count, INT64)),
    "regexp_instr": Function(
        "regexp_instr(text, pattern[, start[, occurrence]])",
        (TEXT, _PATTERN, INTEGER, LITERAL_INTEGER),
        _with_pattern(_instr, INT64),
        optional=2,
    ),
}
