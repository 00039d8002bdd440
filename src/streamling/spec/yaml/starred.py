"""The lines of a YAML file with a star for each character that may belong to a secret: columns stay the same.

The file may be broken, so this goes by lines, keys and indentation, and hides too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from streamling.spec.mask import MASK, is_secretive, password_spans, password_spans_in_text

_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
# A key with its colon; `::` is a cast in SQL.
_KEY = re.compile(r"""["']?([\w./-]+)["']?\s*:(?!:)\s*""")
_LEADING_KEY = re.compile(r"""[\s-]*(?:\?\s+)?["']?([\w./-]+)["']?[ \t]*:(?:\s+|$)""")
_EXPLICIT_KEY = re.compile(r"""[\s-]*\?\s+["']?([\w./-]+)""")
_PROPERTIES = re.compile(r"\s*(?:[&!]\S*\s+)*")
_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"([^"]*)\"""")
# Of these the values are secrets, the keys below them are not.
_MAPS = ("headers", "plugin", "http_secret_header", "http_secret_value")
_CLOSING = {"{": "}", "[": "]"}


def split_lines(text: str) -> list[str]:
    """The lines as the YAML parser counts them."""
    return _BREAK.split(text)


def star_secrets(lines: Sequence[str], public: Collection[str] | None = None) -> list[str]:
    """The lines without secrets. With `public`, only values of these keys are left: for files that hold passwords."""
    starring = _Starring(public)
    return [starring.line(line) for line in lines]


def quote(word: str) -> str:
    """A word of the file in quotes, so that `without_secrets` finds its end."""
    return "'" + word.replace("'", "''") + "'"


def without_secrets(message: str, text: str, public: Collection[str] | None = None) -> str:
    """A message about a broken file: what it quotes of the file is masked unless the starred file has it too."""
    starred = "\n".join(star_secrets(split_lines(text), public))

    def mask(quoted: re.Match[str]) -> str:
        word = (quoted[1] or quoted[2] or "").replace("''", "'")
        of_parser = len(word) < 3 or (word[0] == "<" and word[-1] == ">")
        return quoted[0] if of_parser or word in starred else f"'{MASK}'"

    return _QUOTED.sub(mask, message)


@dataclass(frozen=True, slots=True)
class _Below:
    """What is indented more than a key with secret values."""

    indent: int
    is_map: bool


class _Starring:
    def __init__(self, public: Collection[str] | None) -> None:
        self._public = public
        self._below: list[_Below] = []
        self._open = ""
        """The quote or brackets that must be closed before the value of a secret key ends, the innermost last."""

    def line(self, line: str) -> str:
        if self._open:
            end = self._close(line, 0)
            # Anything else behind the value means that it was not closed here: a password may contain quotes.
            is_closed = line[end:].lstrip()[:1] in ("", ",", "}", "]", "#")
            return _star(line[:end]) + (self._fresh(line[end:]) if is_closed else _star(line[end:]))
        indent = len(line) - len(line.lstrip(" "))
        content = line.strip()
        if content:
            # Items of a list may be indented like the key they belong to; so is the value of an explicit key.
            same = content.startswith(("- ", ": ")) or content in ("-", ":")
            while self._below and indent <= self._below[-1].indent and not (same and indent == self._below[-1].indent):
                self._below.pop()
        if any(not below.is_map for below in self._below):
            return _star(line)
        if (explicit := _EXPLICIT_KEY.match(line)) is not None and _hides(explicit[1]):
            self._below.append(_Below(indent, is_map=False))
            return line[: explicit.end()] + _star(line[explicit.end() :])
        return self._below_map(line, indent) if self._below else self._fresh(line, indent)

    def _below_map(self, line: str, indent: int) -> str:
        key = _LEADING_KEY.match(line)
        return _star(line) if key is None else self._secret_value(line, key.end(), indent, key[1])

    def _fresh(self, line: str, indent: int = 0) -> str:
        """A line, or the rest of one, that does not belong to a secret key above it."""
        for key in _KEY.finditer(line):
            if _hides(key[1]):
                before = self._visible(line[: key.start()])
                return before + self._secret_value(line, key.end(), indent, key[1])[key.start() :]
        return self._visible(line)

    def _secret_value(self, line: str, start: int, indent: int, key: str) -> str:
        self._below.append(_Below(indent, is_map=key.lower() in _MAPS))
        properties = _PROPERTIES.match(line, start)
        first = properties.end() if properties else start
        if line[first : first + 1] in ("'", '"', "{", "["):
            self._open = line[first]
            self._close(line, first + 1)
        return line[:start] + _star(line[start:])

    def _close(self, line: str, start: int) -> int:
        """The index after the character that closes what is open; the end of the line if it stays open."""
        index = start
        while index < len(line):
            char, inner = line[index], self._open[-1]
            if inner == '"' and char == "\\":
                index += 1
            elif inner in "'\"":
                self._open = self._open[:-1] if char == inner else self._open
            elif char in "'\"{[":
                self._open += char
            elif char == _CLOSING[inner]:
                self._open = self._open[:-1]
            index += 1
            if not self._open:
                return index
        return len(line)

    def _visible(self, line: str) -> str:
        key = _LEADING_KEY.match(line)
        if self._public is None:
            start = key.end() if key is not None else 0
            spans = password_spans(line, bare=False) or password_spans_in_text(line)
            spans += [(start, len(line))] if password_spans(line[start:].strip("\"' ")) and start else []
            return _star_spans(line, spans)
        if key is None:
            return line if line.lstrip().startswith("#") and not line.strip("# ") else _star(line)
        value = line[key.end() :]
        if key[1].lower() in self._public and not value.startswith(("{", "[", "&", "*", "!", "|", ">")):
            return line[: key.end()] + _star_spans(value, password_spans(value.strip("\"' ")) and [(0, len(value))])
        return line[: key.end()] + _star(value)


def _hides(key: str) -> bool:
    return is_secretive(key) or key.lower() in _MAPS


def _star(text: str) -> str:
    return re.sub(r"\S", "*", text)


def _star_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + _star(text[start:end]) + text[end:]
    return text
