"""LIKE patterns and regular expressions, translated to Spark's.

Ours are PostgreSQL's LIKE and the regular expressions of Rust's `regex` crate; Spark has its own LIKE and Java's
regular expressions.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamling.errors import SQL_UNSUPPORTED
from streamling.plan.sql.values import Refusal


def like_pattern(pattern: str, escape: str = "\\") -> str:
    """A LIKE pattern for Spark: a backslash before `%`, `_` and itself, and nowhere else."""

    def quote(character: str) -> str:
        return f"\\{character}" if character in "%_\\" else character

    return _unescape("LIKE", pattern, escape, quote, {"\\": "\\\\"})


def similar_pattern(pattern: str, escape: str = "\\") -> str:
    """A pattern of SIMILAR TO as one of our regular expressions that matches the whole text."""
    return f"^(?s:{_unescape('SIMILAR TO', pattern, escape, re.escape, _SIMILAR)})$"


def _unescape(what: str, pattern: str, escape: str, quote: Callable[[str], str], others: Mapping[str, str]) -> str:
    """The pattern with `quote` applied to each escaped character, and the others replaced by `others`."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise Refusal(f"the {what} pattern '{pattern}' ends with its escape character")
            parts.append(quote(escaped))
        else:
            parts.append(others.get(character, character))
    return "".join(parts)


_SIMILAR = {"%": ".*", "_": ".", ".": "\\.", "^": "\\^", "$": "\\$", "\\": "\\\\"}


def java_regexp(pattern: str, flags: str = "") -> str:
    """A regular expression in Java's syntax that matches what `pattern` matches.

    There is no look-around and there are no back references; syntax with another meaning in Java is translated or
    refused.
    flags   `i` (ignore case), `m` (lines), `s` (dot matches line ends)
    """
    return _Translation(pattern, flags).result()


_BROKEN = (
    "missing )", "unbalanced parenthesis", "nothing to repeat", "unterminated", "min repeat greater",
    "bad escape (end",
)  # fmt: skip
# Syntax of Rust and Java that Python does not have; it is replaced, so that Python can check the rest.
_FOREIGN = re.compile(r"\\[pP](\{\^?\w+\}|[A-Za-z])|\\x\{[0-9A-Fa-f]+\}|\\z|\[:\^?\w+:\]")


def is_well_formed(pattern: str) -> bool:
    """Whether the structure of a regular expression is valid: brackets are closed, there is something to repeat."""
    python = _FOREIGN.sub("a", pattern).replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(python)
    except re.error as error:
        return not error.msg.startswith(_BROKEN)
    except OverflowError:
        return False
    return True


def groups_of(pattern: str) -> int:
    """The number of capturing groups of a well-formed pattern."""
    plain = re.sub(r"\\.|\[\^?\]?(\\.|\[:\w+:\]|[^\]])*\]", "", pattern, flags=re.DOTALL)
    return len(re.findall(r"\((?!\?)|\(\?P?<(?![=!])", plain))


_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": "\\t ",
    "digit": "0-9",
    "lower": "a-z",
    "space": "\\t\\n\\x0B\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_SAME_ESCAPES = frozenset("tnrfa")
_UNICODE_ESCAPES = frozenset("dDwWsSbB")
_ANCHORS = frozenset("Az")


@dataclass(slots=True)
class _Translation:
    """One pass over a pattern. `depth` is the number of open character classes."""

    pattern: str
    flags: str
    position: int = 0
    depth: int = 0
    unicode: bool = False
    dot: bool = False
    lines: bool = False

    def result(self) -> str:
        self.lines = "m" in self.flags or re.search(r"\(\?[a-z]*m", self.pattern) is not None
        parts: list[str] = []
        while self.position < len(self.pattern):
            parts.append(self._in_class() if self.depth else self._outside())
        return self._prefix() + "".join(parts)

    def _prefix(self) -> str:
        """Flags for our meaning: in Java `.`, `^`, `$` accept more line ends than `\\n`, and `\\w`, `\\d`, `(?i)` only
        know ASCII."""
        switches = self.flags
        if self.dot or self.lines:
            switches += "d"
        if self.unicode or "i" in self.flags:
            switches += "U"
        return f"(?{switches})" if switches else ""

    def _refuse(self, what: str) -> Refusal:
        return Refusal(f"regular expression '{self.pattern}': {what} is unsupported", condition=SQL_UNSUPPORTED)

    def _take(self, count: int = 1) -> str:
        characters = self.pattern[self.position : self.position + count]
        self.position += count
        return characters

    def _outside(self) -> str:
        character = self._take()
        handler = _OUTSIDE.get(character)
        return character if handler is None else handler(self)

    def _dot(self) -> str:
        self.dot = True
        return "."

    def _end(self) -> str:
        # Java's `$` also matches before a line end at the end of the text.
        return "$" if self.lines else "\\z"

    def _quantifier(self) -> str:
        quantifier = self.pattern[self.position - 1]
        if self.pattern[self.position : self.position + 1] == "+":
            raise self._refuse(f"`{quantifier}+`")
        return quantifier

    def _group(self) -> str:
        named = re.compile(r"\?P?<(?![=!])[^>]*>").match(self.pattern, self.position)
        if named:
            self.position = named.end()
            return "("
        special = re.compile(r"\?([a-zA-Z-]*[:)]|.{0,2})").match(self.pattern, self.position)
        if special is None:
            return "("
        switches = special.group(1)
        if not switches or not set(switches) <= set("ims-:)"):
            raise self._refuse(f"`({special.group(0)}`")
        self.unicode = self.unicode or "i" in switches
        self.position = special.end()
        return "(" + special.group(0)

    def _open_class(self) -> str:
        self.depth += 1
        opening = "["
        if self.pattern.startswith("^", self.position):
            opening += self._take()
        if self.pattern.startswith("]", self.position):
            self._take()
            opening += "\\]"
        return opening

    def _in_class(self) -> str:
        for operator in ("--", "~~"):
            if self.pattern.startswith(operator, self.position):
                raise self._refuse(f"`{operator}` in a character class")
        posix = re.compile(r"\[:(\^?\w+):\]").match(self.pattern, self.position)
        if posix:
            self.position = posix.end()
            if posix.group(1) not in _POSIX:
                raise self._refuse(f"`{posix.group(0)}`")
            return _POSIX[posix.group(1)]
        character = self._take()
        if character == "]":
            self.depth -= 1
        if character == "[":
            return self._open_class()
        return self._escape() if character == "\\" else character

    def _escape(self) -> str:
        character = self._take()
        if not character:
            raise self._refuse("`\\` at the end")
        if character in _UNICODE_ESCAPES:
            self.unicode = True
            return "\\" + character
        if character in _SAME_ESCAPES or (character in _ANCHORS and not self.depth):
            return "\\" + character
        if character == "v":
            return "\\x0B"
        if character in "xuU":
            return self._code_point(character)
        if character in "pP":
            return self._property(character)
        if character.isalnum() or character in "<>":
            raise self._refuse(f"`\\{character}`")
        return "\\" + character

    def _code_point(self, kind: str) -> str:
        width = {"x": 2, "u": 4, "U": 8}[kind]
        digits = re.compile(rf"\{{([0-9A-Fa-f]+)\}}|([0-9A-Fa-f]{{{width}}})").match(self.pattern, self.position)
        if digits is None:
            raise self._refuse(f"`\\{kind}`")
        self.position = digits.end()
        return f"\\x{{{digits.group(1) or digits.group(2)}}}"

    def _property(self, kind: str) -> str:
        match = re.compile(r"\{(\w+)\}|([A-Z])").match(self.pattern, self.position)
        if match is None:
            raise self._refuse(f"`\\{kind}`")
        self.position = match.end()
        name = match.group(1) or match.group(2)
        return f"\\{kind}{{{name if len(name) <= 2 else 'Is' + name}}}"


_OUTSIDE: dict[str, Callable[[_Translation], str]] = {
    "\\": _Translation._escape,
    ".": _Translation._dot,
    "$": _Translation._end,
    "(": _Translation._group,
    "[": _Translation._open_class,
    "*": _Translation._quantifier,
    "+": _Translation._quantifier,
    "?": _Translation._quantifier,
    "}": _Translation._quantifier,
}
