"""The line of a file that an error refers to, with a caret under the column, without secrets."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from streamling.cli.terminal import cells, printable
from streamling.errors import Where
from streamling.spec.yaml.starred import split_lines, star_secrets

WIDTH = 120


def excerpt(where: Where, width: int = WIDTH, public: Collection[str] | None = None) -> list[str]:
    """Two lines: the text, at most `width` characters, and the caret. Empty if the file cannot be read any more.

    With `public`, only values of these keys are shown.
    """
    try:
        lines = split_lines(Path(where.file).read_text(encoding="utf-8-sig", errors="replace"))
        line = lines[where.line - 1]
    except (OSError, ValueError, IndexError):
        return []
    text = printable(star_secrets(lines[: where.line], public)[-1])
    visible, column = _clip(text, min(where.column, len(line) + 1), width)
    prefix = f"  {where.line:>4} | "
    return [prefix + visible.rstrip(), " " * (len(prefix) + cells(visible[: column - 1])) + "^"]


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
