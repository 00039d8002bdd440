"""The line of a file that an error refers to, with a caret under the column, without secrets."""

from __future__ import annotations

import re
from pathlib import Path

from streamling.cli.terminal import cells, printable
from streamling.errors import Where
from streamling.spec.secret import SECRETIVE, mask_url

WIDTH = 120
# A key with its colon; `::` is a cast in SQL.
_KEY = re.compile(r"""["']?([\w./-]+)["']?\s*:(?!:)\s*""")


def excerpt(where: Where, width: int = WIDTH) -> list[str]:
    """Two lines: the text, at most `width` characters, and the caret. Empty if the file cannot be read any more."""
    try:
        lines = Path(where.file).read_text(encoding="utf-8-sig", errors="replace").splitlines()
        line = lines[where.line - 1]
    except (OSError, ValueError, IndexError):
        return []
    text = printable(_mask_line(lines, where.line - 1))
    visible, column = _clip(text, min(where.column, len(line) + 1), width)
    prefix = f"  {where.line:>4} | "
    return [prefix + visible.rstrip(), " " * (len(prefix) + cells(visible[: column - 1])) + "^"]


def _mask_line(lines: list[str], index: int) -> str:
    """The line with a star for each character that may belong to a secret: columns stay the same."""
    line = lines[index]
    start = 0 if _under_secret(lines, index) else None
    for key in _KEY.finditer(line):
        if start == 0 or _is_secretive(key[1]):
            start = key.end()
            break
    if start is not None:
        return line[:start] + re.sub(r"[^\s,{}\[\]]", "*", line[start:])
    return _stretch_mask(line, mask_url(line))


def _stretch_mask(line: str, masked: str) -> str:
    """The masked line with as many stars as make it as long as the line."""
    if line == masked:
        return line
    same = next((i for i, (a, b) in enumerate(zip(line, masked, strict=False)) if a != b), len(masked))
    after = next((i for i, (a, b) in enumerate(zip(line[::-1], masked[::-1], strict=False)) if a != b), 0)
    after = min(after, len(line) - same)
    return line[:same] + "*" * (len(line) - same - after) + line[len(line) - after :]


def _under_secret(lines: list[str], index: int) -> bool:
    """Whether one of the keys above the line, of less indentation, has secret values."""
    own = _indentation(lines[index])
    for line in reversed(lines[:index]):
        if line.strip() and _indentation(line) < own:
            own = _indentation(line)
            key = _KEY.match(line.lstrip(" -"))
            if key is not None and _is_secretive(key[1]):
                return True
    return False


def _is_secretive(key: str) -> bool:
    """Whether its value may be a secret. All headers count: any of them may be a credential."""
    return key.lower() == "headers" or SECRETIVE.search(key) is not None


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _clip(line: str, column: int, width: int) -> tuple[str, int]:
    if len(line) <= width:
        return line, column
    start = max(0, min(column - 1 - width // 2, len(line) - width))
    text = line[start : start + width]
    if start:
        text = "…" + text[1:]
    if start + width < len(line):
        text = text[:-1] + "…"
    return text, column - start
