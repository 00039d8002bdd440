"""The line of the user's file an error speaks of, with a caret under the place, safe to print."""

from __future__ import annotations

import re
from pathlib import Path

from streamling.cli.terminal import cells, printable
from streamling.errors import Where
from streamling.spec.secret import SECRETIVE, mask_url

WIDTH = 120
# A key and what follows it on its line; `::` is a cast.
_KEY = re.compile(r"""["']?([\w./-]+)["']?\s*:(?!:)\s*""")


def excerpt(where: Where, width: int = WIDTH) -> list[str]:
    """Two lines: the text, of at most `width` characters, and the caret; none if the file cannot be read any more."""
    try:
        lines = Path(where.file).read_text(encoding="utf-8-sig", errors="replace").splitlines()
        line = lines[where.line - 1]
    except (OSError, ValueError, IndexError):
        return []
    text = printable(_masked(lines, where.line - 1))
    shown, column = _clipped(text, min(where.column, len(line) + 1), width)
    prefix = f"  {where.line:>4} | "
    return [prefix + shown.rstrip(), " " * (len(prefix) + cells(shown[: column - 1])) + "^"]


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


def _clipped(line: str, column: int, width: int) -> tuple[str, int]:
    if len(line) <= width:
        return line, column
    start = max(0, min(column - 1 - width // 2, len(line) - width))
    text = line[start : start + width]
    if start:
        text = "…" + text[1:]
    if start + width < len(line):
        text = text[:-1] + "…"
    return text, column - start
