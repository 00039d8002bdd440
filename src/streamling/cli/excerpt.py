"""The line of the user's file an error speaks of, with a caret under the place, safe to print."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from streamling.errors import Where
from streamling.spec.secret import MASK, mask_url

WIDTH = 120
_BEFORE = 60
# Values under these keys may be credentials. A map of headers is masked whole: any of them may be one.
_SECRET = re.compile(
    r"""(?ix) ( ["']? [\w.-]* (?: pass | secret | token | credential | authori[sz]ation | api[-_]?key | cookie )
        [\w.-]* ["']? \s* : \s* ) (?! [\[{|>]) ( [^,}\s] [^,}]* )"""
)
_HEADERS = re.compile(r"(?i)([\"']?headers[\"']?\s*:\s*\{)([^}]*)")
_HEADERS_ABOVE = re.compile(r"(?i)^[\s-]*[\"']?headers[\"']?\s*:\s*$")
_VALUE = re.compile(r"^(\s*[^:]+:\s*)(\S.*)$")


def excerpt(where: Where) -> list[str]:
    """Two lines: the text and the caret; none if the file cannot be read any more."""
    try:
        lines = Path(where.file).read_text(encoding="utf-8-sig", errors="replace").splitlines()
        line = lines[where.line - 1]
    except (OSError, ValueError, IndexError):
        return []
    shown, column = _clipped(_printable(_masked(lines, where.line - 1)), min(where.column, len(line) + 1))
    prefix = f"  {where.line:>4} | "
    return [prefix + shown.rstrip(), " " * (len(prefix) + _cells(shown[: column - 1])) + "^"]


def _masked(lines: list[str], index: int) -> str:
    line = mask_url(lines[index])
    if _under_headers(lines, index):
        return _VALUE.sub(lambda found: found[1] + MASK, line)
    line = _HEADERS.sub(lambda found: found[1] + MASK, line)
    return _SECRET.sub(lambda found: found[1] + MASK, line)


def _under_headers(lines: list[str], index: int) -> bool:
    """Whether the nearest line above with less indentation opens a map of headers."""
    own = _indentation(lines[index])
    for line in reversed(lines[:index]):
        if line.strip() and _indentation(line) < own:
            return _HEADERS_ABOVE.match(line) is not None
    return False


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _printable(line: str) -> str:
    """One character for one character, so that columns stay where they are."""
    return "".join(" " if c == "\t" else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def _clipped(line: str, column: int) -> tuple[str, int]:
    if len(line) <= WIDTH:
        return line, column
    start = max(0, min(column - 1 - _BEFORE, len(line) - WIDTH))
    text = line[start : start + WIDTH]
    if start:
        text = "…" + text[1:]
    if start + WIDTH < len(line):
        text = text[:-1] + "…"
    return text, column - start


def _cells(text: str) -> int:
    """Columns on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
