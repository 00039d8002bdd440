"""Names, string literals and lists in the SQL of ClickHouse."""

from __future__ import annotations

import re
from collections.abc import Iterator

_QUOTED_NAME = r"`(?:[^`\\]|\\.|``)*`" + r'|"(?:[^"\\]|\\.|"")*"'
NAME = rf"(?:[A-Za-z_][A-Za-z0-9_]*|{_QUOTED_NAME})"
_TEXT = r"'(?:[^'\\]|\\.|'')*'"
_TOKEN = re.compile(rf"{_QUOTED_NAME}|{_TEXT}|[][(),]|[^][(),'`\"]+", re.DOTALL)
_NESTING = {"(": 1, "[": 1, ")": -1, "]": -1}
_CALL = re.compile(r"[A-Za-z][A-Za-z0-9_]*\(")
# Two quotes mean one quote only inside quotes of the same kind.
_ESCAPED = {quote: re.compile(rf"\\(.)|({quote}){quote}", re.DOTALL) for quote in "'`\""}
_CONTROL = {"0": "\0", "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def quote_name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def plain_name(text: str) -> str | None:
    """The name without its quotes; None if `text` is not a name."""
    if not re.fullmatch(NAME, text, re.DOTALL):
        return None
    return _unquote(text) if text[0] in '`"' else text


def plain_text(text: str) -> str | None:
    """The value of a string literal; None if `text` is not one."""
    return _unquote(text) if re.fullmatch(_TEXT, text, re.DOTALL) else None


def split_list(text: str) -> tuple[str, ...]:
    """The items between commas outside of parentheses and quotes. Raises ValueError if one of these is not closed."""
    items: list[str] = []
    start = 0
    for token, depth in _tokens(text):
        if token[0] == "," and not depth:
            items.append(text[start : token.start()].strip())
            start = token.end()
    return (*items, text[start:].strip()) if text.strip() else ()


def call_arguments(text: str) -> tuple[str, ...]:
    """The arguments of the call that `text` begins with. Raises ValueError if its parentheses are not closed."""
    call = _CALL.match(text)
    if call is not None:
        for token, depth in _tokens(text):
            if token[0] == ")" and not depth:
                return split_list(text[call.end() : token.start()])
    return ()


def _tokens(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Every token, and the depth of parentheses after it."""
    at = depth = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(text)
        depth += _NESTING.get(token[0], 0)
        if depth < 0:
            raise ValueError(text)
        yield token, depth
        at = token.end()
    if depth:
        raise ValueError(text)


def _unquote(text: str) -> str:
    return _ESCAPED[text[0]].sub(lambda match: match[2] or _CONTROL.get(match[1], match[1]), text[1:-1])
