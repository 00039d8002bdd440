"""Maps a position inside a YAML text value to its position in the file.

Folding, quoting and indentation change whitespace and escapes, never the order of the other characters. So the n-th
character of the value that is not whitespace is the n-th one in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from streamling.errors import Where

_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|\r\n|.)", re.DOTALL)
_SPACE_ESCAPES = frozenset("ntrvf LPN_\t \n\r")


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A value as written in the file, with its anchors, quotes and block header."""

    text: str
    style: str | None
    where: Where
    """Position of the first character."""

    def locate(self, value: str, offset: int) -> Where:
        """The position of the character at `offset` of the value, or of the next one that is not whitespace."""
        number = sum(1 for char in value[:offset] if not char.isspace())
        index = next(islice(self._characters(), number, None), None)
        return self.where if index is None else self._at(index)

    def _at(self, index: int) -> Where:
        before = self.text[:index].replace("\r\n", "\n").replace("\r", "\n")
        lines = before.count("\n")
        column = len(before) - before.rfind("\n") if lines else self.where.column + len(before)
        return Where(self.where.file, self.where.line + lines, column)

    def _characters(self) -> Iterator[int]:
        """Indexes of the characters that are not whitespace, in the order of the value."""
        properties = _PROPERTIES.match(self.text)
        start, end = properties.end() if properties else 0, len(self.text)
        if self.style in ("|", ">"):
            start = self.text.find("\n", start) + 1
        elif self.style in ("'", '"'):
            start, end = start + 1, end - 1
        while start < end:
            char, length = self.text[start], 1
            if self.style == "'" and char == "'":
                length = 2
            elif self.style == '"' and (escape := _ESCAPE.match(self.text, start)) is not None:
                char, length = self._unescape(escape[0]), len(escape[0])
            if not char.isspace():
                yield start
            start += length

    @staticmethod
    def _unescape(escape: str) -> str:
        """The character of an escape; any stand-in will do, as only whitespace or not matters."""
        if escape[1] in "xuU" and len(escape) > 2:
            code = int(escape[2:], 16)
            return chr(code) if code <= 0x10FFFF else "?"
        return " " if escape[1] in _SPACE_ESCAPES else "?"
