"""From a place inside a YAML text value back to the place in the file it was written at.

Folding, quoting and indentation change blanks and escapes, never the order of the other characters. So the n-th
character that is no blank in the value is the n-th in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from streamling.errors import Where

_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|\r\n|.)", re.DOTALL)
_BLANK_ESCAPES = frozenset("ntrvf LPN_\t \n\r")


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A value as it stands in the file, anchors, quotes and block header included."""

    text: str
    style: str | None
    where: Where
    """Place of the first character."""

    def locate(self, value: str, offset: int) -> Where:
        """The place of the character at `offset` of the value, or of the next one that is no blank."""
        number = sum(1 for char in value[:offset] if not char.isspace())
        found = next(islice(self._characters(), number, None), None)
        return self.where if found is None else self._at(found)

    def _at(self, index: int) -> Where:
        before = self.text[:index].replace("\r\n", "\n").replace("\r", "\n")
        lines = before.count("\n")
        column = len(before) - before.rfind("\n") if lines else self.where.column + len(before)
        return Where(self.where.file, self.where.line + lines, column)

    def _characters(self) -> Iterator[int]:
        """Indexes of the characters that are no blanks, in the order they have in the value."""
        found = _PROPERTIES.match(self.text)
        start, end = found.end() if found else 0, len(self.text)
        if self.style in ("|", ">"):
            start = self.text.find("\n", start) + 1
        elif self.style in ("'", '"'):
            start, end = start + 1, end - 1
        while start < end:
            char, length = self.text[start], 1
            if self.style == "'" and char == "'":
                length = 2
            elif self.style == '"' and (escape := _ESCAPE.match(self.text, start)) is not None:
                char, length = self._escaped(escape[0]), len(escape[0])
            if not char.isspace():
                yield start
            start += length

    @staticmethod
    def _escaped(escape: str) -> str:
        """The character an escape stands for, as far as it matters: a blank or not."""
        if escape[1] in "xuU" and len(escape) > 2:
            code = int(escape[2:], 16)
            return chr(code) if code <= 0x10FFFF else "?"
        return " " if escape[1] in _BLANK_ESCAPES else "?"
