"""Formats of dates and times: translates `%Y-%m-%d` to the letters of Java that Spark uses."""

from __future__ import annotations

import re

from streamling.errors import SQL_UNSUPPORTED
from streamling.plan.sql.values import Refusal

_JAVA = {
    "Y": "yyyy",
    "y": "yy",
    "m": "MM",
    "d": "dd",
    "j": "DDD",
    "H": "HH",
    "I": "hh",
    "M": "mm",
    "S": "ss",
    "p": "a",
    "a": "EEE",
    "A": "EEEE",
    "b": "MMM",
    "h": "MMM",
    "B": "MMMM",
    "F": "yyyy-MM-dd",
    "T": "HH:mm:ss",
    "R": "HH:mm",
    "D": "MM/dd/yy",
    "3f": "SSS",
    "6f": "SSSSSS",
    ".3f": ".SSS",
    ".6f": ".SSSSSS",
}
_LITERALS = {"%": "%", "n": "\n", "t": "\t"}
# Java can format these, but Spark cannot parse them.
_FORMAT_ONLY = frozenset("aA")
_PART = re.compile(r"%(\.?[36]?f|.)|([^%]+)", re.DOTALL)


def java_format(text: str, *, reading: bool) -> str:
    """The format for Spark; `reading`: to parse a text, else to format a time."""
    parts: list[str] = []
    end = 0
    for match in _PART.finditer(text):
        letter, literal = match.groups()
        literal = _LITERALS.get(letter, literal)
        parts.append(_quote(literal) if literal is not None else _letters(letter, text, reading))
        end = match.end()
    if end != len(text):
        raise _unsupported_part("%", text)
    return "".join(parts)


def _letters(letter: str, text: str, reading: bool) -> str:
    java = _JAVA.get(letter)
    if java is None or (reading and letter in _FORMAT_ONLY):
        raise _unsupported_part(f"%{letter}", text)
    return java


def _quote(literal: str) -> str:
    return "'" + literal.replace("'", "''") + "'" if any(c.isalpha() or c in "'[]{}#" for c in literal) else literal


def _unsupported_part(part: str, text: str) -> Refusal:
    known = " ".join(f"%{letter}" for letter in (*_JAVA, *_LITERALS))
    return Refusal(
        f"`{part}` in the format '{text}' is unsupported", condition=SQL_UNSUPPORTED, hint=f"accepted: {known}"
    )
