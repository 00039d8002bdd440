"""What an author most likely got wrong where the parser gave up: in plain words, at the place of the culprit.

The parser knows what it expected, not what was meant. Here the lines around the place are looked at as a person would.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

TEMPLATED = "this looks like a template placeholder; the file is not templated"
_IN_QUOTES = "put all of the value in quotes"

_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_MARKS = re.compile(r"\{\{|\{%")
_KEY = re.compile(r"(?:- +)*([\w.-]+|'[^']*'|\"[^\"]*\")[ \t]*:(?=[ \t]|$)")
_GLUED = re.compile(r"(?:- +)*([\w.-]+):(?!//)\S")
_BARE = re.compile(r"(?:- +)*([\w.-]+)(?!.*: )")
_BLOCK = re.compile(r":[ \t]+(?:[&!]\S*[ \t]+)*[|>][-+0-9]*[ \t]*(?:#.*)?$")
_SQL_FIELDS = ("sql", "filter")
# Blanks to the eye that neither Unicode nor Python count among the blanks.
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"


@dataclass(frozen=True, slots=True)
class Slip:
    """A mistake. Line and column count from 1."""

    problem: str
    line: int
    column: int
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the parser said: what it was doing, what it did not like, and the places of both and of the last value."""

    context: str
    problem: str
    line: int
    column: int
    begun: tuple[int, int]
    last: tuple[int, int]


def odd_blank(text: str) -> str | None:
    """The name of the first character that looks like a blank of the indentation and is none."""
    for char in text:
        if char in _INVISIBLE or (char.isspace() and not char.isascii()):
            return f"U+{ord(char):04X} ({unicodedata.name(char, 'unnamed').lower()})"
        if not char.isspace():
            return None
    return None


def is_templated(text: str, line: int) -> bool:
    """Whether a line holds the marks of a template language."""
    lines = _BREAK.split(text)
    return 1 <= line <= len(lines) and _MARKS.search(lines[line - 1]) is not None


def find_slip(text: str, refusal: Refusal) -> Slip | None:
    """The mistake behind a refusal, if it is one of those that people make."""
    lines = _Lines(_BREAK.split(text))
    slip = _slip(lines, refusal)
    if slip is not None and slip.hint == _IN_QUOTES and (field := lines.field(slip.line)) in _SQL_FIELDS:
        return replace(slip, hint=f"write the SQL as a block: {field}: |")
    return slip


def _slip(lines: _Lines, refusal: Refusal) -> Slip | None:
    if (oddly := lines.oddly_indented(refusal.line)) is not None:
        return oddly
    problem = refusal.problem
    if "could not find expected ':'" in problem:
        return lines.without_colon(refusal.begun[0])
    if "mapping values are not allowed" in problem:
        return lines.second_colon(refusal)
    if "expected <block end>" in problem or "expected '<document start>'" in problem:
        return lines.misplaced(refusal)
    if (found := re.search(r"character '(.)' that cannot start any token", problem)) is not None:
        return Slip(f"a value cannot begin with '{found[1]}'", refusal.line, refusal.column, _IN_QUOTES)
    if refusal.context in ("while scanning an alias", "while scanning an anchor"):
        char = "*" if refusal.context.endswith("alias") else "&"
        what = "names an anchor" if char == "*" else "sets an anchor"
        return Slip(f"'{char}' at the beginning of a value {what}, and no name follows", *refusal.begun, _IN_QUOTES)
    if refusal.context == "while scanning a block scalar" and "comment or a line break" in problem:
        problem = "'|' or '>' begins a block of text, which stands on the lines below it"
        return Slip(problem, *refusal.begun, _IN_QUOTES)
    return None


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a text; numbers count from 1."""

    lines: Sequence[str]

    def field(self, number: int) -> str | None:
        """The key whose value stands in a line, or begins above it."""
        while number:
            if (found := _KEY.match(self._content(number))) is not None:
                return found[1]
            number = self._above(number)
        return None

    def oddly_indented(self, number: int) -> Slip | None:
        for line in (number, self._above(number)):
            if line and (name := odd_blank(self.lines[line - 1])) is not None:
                return Slip(f"line {line} is indented with {name}, which is no blank", line, 1, "use spaces to indent")
        return None

    def without_colon(self, number: int) -> Slip | None:
        """A line that is read as a key and has no `: `."""
        content = self._content(number)
        column = self._indent(number) + 1
        above = self._above(number, below=self._indent(number) + 1)
        if above and above != self._above(number) and _BLOCK.search(self.lines[above - 1]):
            field = self.field(above)
            problem = f"line {number} is indented like '{field}' above it and so is no part of its text"
            return Slip(problem, number, column, f"indent it like the other lines of '{field}'")
        if (found := _GLUED.match(content)) is not None:
            return Slip(f"a blank is missing behind the ':' of '{found[1]}'", number, column + found.end(1))
        if (found := _BARE.match(content)) is not None:
            return Slip(f"'{found[1]}' stands where a key is expected and has no ':' behind it", number, column)
        return None

    def second_colon(self, refusal: Refusal) -> Slip | None:
        """A `: ` where the parser was reading a value, which began in this line or above it."""
        number = refusal.line
        found = _KEY.match(self._content(number))
        first = found is not None and self._indent(number) + found.end() == refusal.column
        above = self._above(number)
        if not first or not above:
            problem = "a ':' inside a value: text with ': ' in it needs quotes"
            return Slip(problem, number, refusal.column, _IN_QUOTES)
        if _GLUED.match(self._content(above)):
            return self.without_colon(above)
        opening = self._above(above, below=self._indent(above))
        if _KEY.match(self._content(above)) is None and not (opening and self._has_value(opening)):
            return self.without_colon(above)
        return self._indentation(number)

    def misplaced(self, refusal: Refusal) -> Slip | None:
        """Something that fits neither the block it stands in nor any around it."""
        number, column = refusal.line, refusal.column
        before, rest = self.lines[number - 1][: column - 1], self.lines[number - 1][column - 1 :]
        if not before.strip():
            if rest.startswith("- ") or rest == "-":
                return Slip("an entry of a list stands among the keys of a map", number, column)
            return self._indentation(number)
        closing = before.rstrip()[-1]
        if closing in "'\"":
            line, start = refusal.last
            if line < number:
                return Slip(f"the quote that opens here closes only in line {number}", line, start)
            return Slip("text behind the closing quote of a value", number, column, _IN_QUOTES)
        if rest[:1] in ("}", "]"):
            return Slip(f"a '{rest[0]}' that nothing opened", number, column)
        return Slip("text behind the end of a value", number, column, _IN_QUOTES)

    def _indentation(self, number: int) -> Slip | None:
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
        own = "not indented" if not indent else f"indented by {indent} blank{'s' if indent > 1 else ''}"
        return Slip(f"line {number} is {own}, the lines around it by {either}", number, indent + 1)

    def _has_value(self, number: int) -> bool:
        found = _KEY.match(content := self._content(number))
        return found is not None and bool(content[found.end() :].split(" #")[0].strip())

    def _above(self, number: int, *, below: int | None = None) -> int:
        """The nearest line above that says something, and is indented less than `below`; 0 if there is none."""
        number -= 1
        while number > 0 and (not self._content(number) or (below is not None and self._indent(number) >= below)):
            number -= 1
        return max(number, 0)

    def _content(self, number: int) -> str:
        """Without blanks at its ends; nothing if it is only a comment."""
        text = self.lines[number - 1].strip() if 1 <= number <= len(self.lines) else ""
        return "" if text.startswith("#") else text

    def _indent(self, number: int) -> int:
        line = self.lines[number - 1]
        return len(line) - len(line.lstrip(" "))
