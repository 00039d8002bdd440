"""The line of the user's file an error speaks of, with a caret under the place, safe to print."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from streamling.errors import Where
from streamling.spec.secret import SECRETIVE, mask_url

WIDTH = 120
_BEFORE = 60
# A key and what follows it on its line; `::` is a cast.
_KEY = re.compile(r"""["']?([\w./-]+)["']?\s*:(?!:)\s*""")


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
    """The line with stars for everything that may be a secret, each for one character, so that columns stay."""
    line = lines[index]
    start = 0 if _under_secret(lines, index) else None
    for key in _KEY.finditer(line):
        if start == 0 or _secretive(key[1]):
            start = key.end()
            break
    if start is not None:
        return line[:start] + re.sub(r"[^\s,{}\[\]]", "*", line[start:])
    return _starred(line, mask_url(line))


def _starred(line: str, masked: str) -> str:
    """The masked line brought to the length of the line."""
    if line == masked:
        return line
    same = next((i for i, (a, b) in enumerate(zip(line, masked, strict=False)) if a != b), len(masked))
    behind = next((i for i, (a, b) in enumerate(zip(line[::-1], masked[::-1], strict=False)) if a != b), 0)
    behind = min(behind, len(line) - same)
    return line[:same] + "*" * (len(line) - same - behind) + line[len(line) - behind :]


def _under_secret(lines: list[str], index: int) -> bool:
    """Whether one of the keys around the line has secret values."""
    own = _indentation(lines[index])
    for line in reversed(lines[:index]):
        if line.strip() and _indentation(line) < own:
            own = _indentation(line)
            key = _KEY.match(line.lstrip(" -"))
            if key is not None and _secretive(key[1]):
                return True
    return False


def _secretive(key: str) -> bool:
    """A map of headers counts whole: any of them may be a credential."""
    return key.lower() == "headers" or SECRETIVE.search(key) is not None


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
