"""Functions of regular expressions. Patterns are literals: they are translated to Java's syntax while planning."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.functions.signature import LITERAL_TEXT, TEXT, Function
from streamling.plan.sql.operators import matches, regexp
from streamling.plan.sql.values import Refusal, Value, any_nullable, string_literal
from streamling.plan.types import STRING


def _regexp_like(arguments: Sequence[Value]) -> Value:
    flags = str(arguments[2].constant) if len(arguments) > 2 else ""
    if not set(flags) <= set("ims"):
        raise Refusal(f"'{flags}' is not made of the flags i, m, s")
    return matches(arguments[0], arguments[1], "".join(sorted(set(flags))))


def _regexp_replace(arguments: Sequence[Value]) -> Value:
    """All matches; the replacement is literal text."""
    text, pattern, replacement = arguments
    result = f"regexp_replace({text.text}, {regexp(pattern)}, {_quoted(replacement)})"
    return Value(result, STRING, any_nullable(arguments))


def _quoted(replacement: Value) -> str:
    """Java reads `\\` and `$` in a replacement."""
    if isinstance(replacement.constant, str):
        return string_literal(replacement.constant.replace("\\", "\\\\").replace("$", "\\$"))
    return rf"replace(replace({replacement.text}, '\\', '\\\\'), '$', '\\$')"


_REGEXP_LIKE = Function("regexp_like(text, pattern[, flags])", (TEXT, TEXT, LITERAL_TEXT), _regexp_like, optional=1)

FUNCTIONS: dict[str, Function] = {
    "regexp_like": _REGEXP_LIKE,
    "regexp": _REGEXP_LIKE,
    "similar": _REGEXP_LIKE,
    "regexp_replace": Function("regexp_replace(text, pattern, replacement)", (TEXT, TEXT, TEXT), _regexp_replace),
}
