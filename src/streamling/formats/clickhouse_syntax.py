"""Names, texts and lists as ClickHouse writes them."""

from __future__ import annotations

import re

QUOTED_NAME = r"`(?:[^`\\]|\\.|``)*`" + r'|"(?:[^"\\]|\\.|"")*"'
NAME = rf"(?:[A-Za-z_][A-Za-z0-9_]*|{QUOTED_NAME})"
_TEXT = r"'(?:[^'\\]|\\.|'')*'"
_TOKEN = re.compile(rf"{QUOTED_NAME}|{_TEXT}|[(),]|[^(),'`\"]+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)|(['`\"])\2", re.DOTALL)
_CONTROL = {"0": "\0", "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def quoted_name(name: str) -> str:
    """A name as it may stand in SQL, in quotes where it needs them."""
    plain = name.isascii() and name.isidentifier()
    return name if plain else "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def plain_name(text: str) -> str | None:
    """The name that SQL means with `text`; None if it is no name."""
    if not re.fullmatch(NAME, text, re.DOTALL):
        return None
    return _unquoted(text) if text[0] in '`"' else text


def plain_text(text: str) -> str | None:
    """The value of a text literal; None if it is none."""
    return _unquoted(text) if re.fullmatch(_TEXT, text, re.DOTALL) else None


def split_list(text: str) -> tuple[str, ...]:
    """The parts between commas, not those inside of parentheses or quotes. Raises ValueError if these have no end."""
    parts: list[str] = []
    start = at = depth = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(text)
        if token[0] == "," and not depth:
            parts.append(text[start:at].strip())
            start = token.end()
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth < 0:
            raise ValueError(text)
        at = token.end()
    if depth:
        raise ValueError(text)
    return (*parts, text[start:].strip()) if text.strip() else ()


def _unquoted(text: str) -> str:
    return _ESCAPED.sub(lambda found: found[2] or _CONTROL.get(found[1], found[1]), text[1:-1])
