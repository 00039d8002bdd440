"""What the terminal at the other end can do, and how styled text gets there."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Fragment = tuple[str, str]
"""A piece of a line, and its style in the words of rich."""


def drawable(stream: TextIO) -> bool:
    """Whether the cursor can be moved about: a terminal that is more than a printer."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown", "")


def coloured(stream: TextIO) -> bool:
    """Whether colours are wanted: FORCE_COLOR and NO_COLOR decide, else what the terminal can do."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or drawable(stream)


def size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal; those of a wide page where there is none."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        found = shutil.get_terminal_size((120, 24))
    return found.columns or 80, found.lines or 24


def cells(text: str) -> int:
    """Columns on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def printable(line: str) -> str:
    """One character for one character, so that columns stay where they are."""
    return "".join(" " if c == "\t" else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def console(stream: TextIO) -> Console:
    """For styled text. Nothing in it is guessed at: no markup, no highlighting, no wrapping."""
    from rich.console import Console

    return Console(file=stream, force_terminal=coloured(stream) or None, markup=False, highlight=False, emoji=False)


def tell(stream: TextIO, lines: Iterable[Iterable[Fragment]]) -> None:
    """Print lines of styled pieces, plain where there are no colours. Rich is imported only where there are."""
    if not coloured(stream):
        print("\n".join("".join(text for text, _ in line) for line in lines), file=stream)
        return
    from rich.text import Text

    shown = console(stream)
    for line in lines:
        shown.print(Text.assemble(*line, end=""), soft_wrap=True)
