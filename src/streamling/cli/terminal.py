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
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):  # marks on the character before it, and variants of it
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, room: int) -> str:
    """As much of the text as fits into this many columns."""
    kept, width = [], 0
    for char in text:
        width += _width(char)
        if width > room:
            break
        kept.append(char)
    return "".join(kept)


def printable(line: str) -> str:
    """The line with each control character replaced by one that can be printed, so that columns stay the same."""
    if line.isprintable():
        return line
    return "".join(" " if c == "\t" else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def styled(line: Iterable[Fragment], *, colours: bool = True) -> str:
    """The line with the terminal codes of its styles; without colours, bold and dim remain."""
    parts = []
    for text, style in line:
        on, off = _codes(style, colours) if text and style else ("", "")
        parts.append(f"{on}{text}{off}")
    return "".join(parts)


def print_styled(stream: TextIO, lines: Iterable[Iterable[Fragment]]) -> None:
    """Print lines with their styles, or as plain text if colours are off. What the stream cannot encode becomes `?`."""
    colours, encoding = has_colours(stream), stream.encoding or "utf-8"
    for line in lines:
        text = styled(line) if colours else "".join(text for text, _ in line)
        print(text.encode(encoding, "replace").decode(encoding), file=stream)


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
