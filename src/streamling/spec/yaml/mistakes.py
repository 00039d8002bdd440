"""The typing mistake that most likely made the YAML parser fail, in plain words and with its own position.

The parser knows what it expected, not what was meant. So the lines around the failure are examined for mistakes that
people make.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

TEMPLATED = "this looks like a template placeholder; the file is not templated"
USE_SPACES = "use spaces to indent"
_IN_QUOTES = "put the whole value in quotes"

_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_TEMPLATE_MARKS = re.compile(r"\{\{|\{%")
_KEY = re.compile(r"(?:- +)*([\w.-]+|'[^']*'|\"[^\"]*\")[ \t]*:(?=[ \t]|$)")
_KEY_WITHOUT_SPACE = re.compile(r"(?:- +)*([\w.-]+):(?!//)\S")
_KEY_WITHOUT_COLON = re.compile(r"(?:- +)*([\w.-]+)(?!.*: )")
_BLOCK = re.compile(r":[ \t]+(?:[&!]\S*[ \t]+)*[|>][-+0-9]*[ \t]*(?:#.*)?$")
_SQL_FIELDS = ("sql", "filter")
# Characters that look like spaces, although neither Unicode nor Python counts them as whitespace.
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in the file. Line and column count from 1."""

    problem: str
    line: int
    column: int
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """What the parser reported.

    context, start          what it was parsing, and where that begins
    problem, line, column   what it did not accept, and where
    last                    where the last value before the failure begins
    """

    context: str
    problem: str
    line: int
    column: int
    start: tuple[int, int]
    last: tuple[int, int]


def odd_space(text: str) -> str | None:
    """The name of the first character of the indentation that only looks like a space."""
    for char in text:
        if char in _INVISIBLE or (char.isspace() and not char.isascii()):
            return f"U+{ord(char):04X} ({unicodedata.name(char, 'unnamed').lower()})"
        if not char.isspace():
            return None
    return None


def is_templated(text: str, line: int) -> bool:
    """Whether a line has the marks of a template language."""
    lines = _BREAK.split(text)
    return 1 <= line <= len(lines) and _TEMPLATE_MARKS.search(lines[line - 1]) is not None


def find_mistake(text: str, failure: ParseFailure) -> Mistake | None:
    """The common mistake that made the parser fail; None if it is not one of those known here."""
    lines = _Lines(_BREAK.split(text))
    mistake = _mistake(lines, failure)
    if mistake is not None and mistake.hint == _IN_QUOTES and (field := lines.field(mistake.line)) in _SQL_FIELDS:
        return replace(mistake, hint=f"write the SQL as a block: {field}: |")
    return mistake


def _mistake(lines: _Lines, failure: ParseFailure) -> Mistake | None:
    if (indentation := lines.odd_indentation(failure.line)) is not None:
        return indentation
    problem = failure.problem
    if "could not find expected ':'" in problem:
        return lines.missing_colon(failure.start[0])
    if "mapping values are not allowed" in problem:
        return lines.second_colon(failure)
    if "expected <block end>" in problem or "expected '<document start>'" in problem:
        return lines.misplaced_text(failure)
    if (token := re.search(r"character '(.)' that cannot start any token", problem)) is not None:
        return Mistake(f"a value cannot begin with '{token[1]}'", failure.line, failure.column, _IN_QUOTES)
    if failure.context in ("while scanning an alias", "while scanning an anchor"):
        char = "*" if failure.context.endswith("alias") else "&"
        what = "refers to an anchor" if char == "*" else "defines an anchor"
        problem = f"'{char}' at the beginning of a value {what}, but no name follows"
        return Mistake(problem, *failure.start, _IN_QUOTES)
    if failure.context == "while scanning a block scalar" and "comment or a line break" in problem:
        problem = "'|' or '>' begins a block of text; the text must begin on the next line"
        return Mistake(problem, *failure.start, _IN_QUOTES)
    return None


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a text; numbers count from 1."""

    lines: Sequence[str]

    def field(self, number: int) -> str | None:
        """The key of the value in a line, which may begin above it."""
        while number:
            if (key := _KEY.match(self._content(number))) is not None:
                return key[1]
            number = self._above(number)
        return None

    def odd_indentation(self, number: int) -> Mistake | None:
        for line in (number, self._above(number)):
            if line and (name := odd_space(self.lines[line - 1])) is not None:
                return Mistake(f"line {line} is indented with {name} instead of spaces", line, 1, USE_SPACES)
        return None

    def missing_colon(self, number: int) -> Mistake | None:
        """A line that is read as a key but has no `: `."""
        content = self._content(number)
        column = self._indent(number) + 1
        above = self._above(number, below=self._indent(number) + 1)
        if above and above != self._above(number) and _BLOCK.search(self.lines[above - 1]):
            field = self.field(above)
            problem = f"line {number} is indented like '{field}' above it, so it is not part of its text"
            return Mistake(problem, number, column, f"indent it like the other lines of '{field}'")
        if (key := _KEY_WITHOUT_SPACE.match(content)) is not None:
            return Mistake(f"a space is missing after the ':' of '{key[1]}'", number, column + key.end(1))
        if (key := _KEY_WITHOUT_COLON.match(content)) is not None:
            return Mistake(f"a key is expected here, but '{key[1]}' has no ':' after it", number, column)
        return None

    def second_colon(self, failure: ParseFailure) -> Mistake | None:
        """A `: ` inside a value, which begins in this line or above it."""
        number = failure.line
        key = _KEY.match(self._content(number))
        first = key is not None and self._indent(number) + key.end() == failure.column
        above = self._above(number)
        if not first or not above:
            problem = "a ':' inside a value: text that contains ': ' needs quotes"
            return Mistake(problem, number, failure.column, _IN_QUOTES)
        if _KEY_WITHOUT_SPACE.match(self._content(above)):
            return self.missing_colon(above)
        opening = self._above(above, below=self._indent(above))
        if _KEY.match(self._content(above)) is None and not (opening and self._has_value(opening)):
            return self.missing_colon(above)
        return self._wrong_indentation(number)

    def misplaced_text(self, failure: ParseFailure) -> Mistake | None:
        """Text that belongs neither to the block it is in nor to a block around it."""
        number, column = failure.line, failure.column
        before, rest = self.lines[number - 1][: column - 1], self.lines[number - 1][column - 1 :]
        if not before.strip():
            if rest.startswith("- ") or rest == "-":
                return Mistake("a list item among the keys of a map", number, column)
            return self._wrong_indentation(number)
        closing = before.rstrip()[-1]
        if closing in "'\"":
            line, start = failure.last
            if line < number:
                return Mistake(f"the quote opened here is closed only in line {number}", line, start)
            return Mistake("text after the closing quote of a value", number, column, _IN_QUOTES)
        if rest[:1] in ("}", "]"):
            return Mistake(f"a '{rest[0]}' without an opening bracket", number, column)
        return Mistake("text after the end of a value", number, column, _IN_QUOTES)

    def _wrong_indentation(self, number: int) -> Mistake | None:
        indent = self._indent(number)
        around: list[int] = []
        above = self._above(number)
        while above:
            around.append(self._indent(above))
            above = self._above(above, below=around[-1])
        if not around or indent in around:
            return None
        words = [str(n) for n in sorted(around)]
        either = " or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}"
        own = "not indented" if not indent else f"indented by {indent} space{'s' if indent > 1 else ''}"
        return Mistake(f"line {number} is {own}, the lines around it by {either}", number, indent + 1)

    def _has_value(self, number: int) -> bool:
        key = _KEY.match(content := self._content(number))
        return key is not None and bool(content[key.end() :].split(" #")[0].strip())

    def _above(self, number: int, *, below: int | None = None) -> int:
        """The nearest line above that has content, and is indented less than `below`; 0 if there is none."""
        number -= 1
        while number > 0 and (not self._content(number) or (below is not None and self._indent(number) >= below)):
            number -= 1
        return max(number, 0)

    def _content(self, number: int) -> str:
        """The line without surrounding spaces; empty if it is only a comment."""
        text = self.lines[number - 1].strip() if 1 <= number <= len(self.lines) else ""
        return "" if text.startswith("#") else text

    def _indent(self, number: int) -> int:
        line = self.lines[number - 1]
        return len(line) - len(line.lstrip(" "))
