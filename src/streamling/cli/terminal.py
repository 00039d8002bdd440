"""What the terminal can do, how large it is, and styled text for it."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import TextIO

Fragment = tuple[str, str]
"""A part of a line, and its style in the words of rich."""


def can_draw(stream: TextIO) -> bool:
    """Whether the cursor can be moved: a terminal, and not a dumb one."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown", "")


def has_colours(stream: TextIO) -> bool:
    """Whether to use colours: NO_COLOR and FORCE_COLOR decide, else the kind of terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or can_draw(stream)


def size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal; without a terminal those of the environment, or of a wide page."""
    try:
        window = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        window = shutil.get_terminal_size((120, 24))
    return window.columns or 80, window.lines or 24


def cells(text: str) -> int:
    """Columns that the text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def printable(line: str) -> str:
    """The line with each control character replaced by one that can be printed, so that columns stay the same."""
    return "".join(" " if c == "\t" else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def styled(line: Iterable[Fragment], *, colours: bool = True) -> str:
    """The line with the terminal codes of its styles; without colours, bold and dim remain."""
    parts = []
    for text, style in line:
        on, off = _codes(style, colours) if text and style else ("", "")
        parts.append(f"{on}{text}{off}")
    return "".join(parts)


def print_styled(stream: TextIO, lines: Iterable[Iterable[Fragment]]) -> None:
    """Print lines with their styles, or as plain text if colours are off."""
    colours = has_colours(stream)
    for line in lines:
        print(styled(line) if colours else "".join(text for text, _ in line), file=stream)


@cache
def _codes(style: str, colours: bool) -> tuple[str, str]:
    """The codes that turn a style on and off."""
    from rich.style import Style  # not before a style is needed: most commands print plain text

    parsed = Style.parse(style) if colours else Style.parse(style).without_color
    on, _, off = parsed.render("|").partition("|")
    return on, off


def ask(question: str) -> int:
    """0 if the user confirms, otherwise the exit code of the command."""
    if not sys.stdin.isatty():
        print("standard input is not a terminal: confirm with --yes", file=sys.stderr)
        return 2
    return 0 if input(f"{question} [y/N] ").strip().lower() in ("y", "yes") else 1
