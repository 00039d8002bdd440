"""A block of lines at the bottom of the terminal that is repainted in place; other output is printed above it.

The cursor is never hidden: it rests in the line below the block. If the process is killed, even with `kill -9`, the
prompt of the shell appears below the block and the terminal works as before.

Why this is not `rich.live`: measured with rich 15, a table of 30 nodes and a window of 120 columns, it takes 12 ms of
CPU per repaint (12 % of a core at ten repaints a second; this module and `table` take 1.1 ms), and 10 ms per row that
is printed above the table, which it renders again each time (here 0.02 ms). It breaks long rows into several lines,
hides the cursor, erases the whole table before each repaint, and leaves parts of the old table behind when the window
becomes narrower. Its import is not the reason: 27 ms, while Java starts.
"""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from streamling.cli.terminal import cells

# Terminals that know these codes show everything between them as one change; others ignore them.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_CODES = re.compile(r"\x1b\[[0-9;]*m")
_TO_LINE_END, _TO_SCREEN_END = "\x1b[K", "\x1b[J"


class Screen:
    """The block. Its lines must be shorter than the terminal is wide, and at least two fewer than it is high.

    Two, because one line is for the cursor, and the block must not begin at the top of the window: erasing the whole
    window makes tmux copy it to its history.
    """

    def __init__(self, terminal: TextIO, width: Callable[[], int]) -> None:
        self._terminal = terminal
        self._current_width = width
        # Nearly all terminals break lines again when they become narrower; these do not.
        self._reflows = "XTERM_VERSION" not in os.environ and os.environ.get("TERM") != "linux"
        self._lock = threading.RLock()
        self._lines: list[str] = []
        self._width = 0

    def paint(self, lines: Sequence[str], width: int) -> None:
        """Show these lines. Only changed lines are written, unless their number or the width has changed."""
        with self._lock:
            if len(lines) != len(self._lines) or width != self._width:
                text = self._top(width) + _TO_SCREEN_END + _joined(lines)
            else:
                text = "".join(
                    f"\x1b[{len(lines) - row}A\r{line}{_TO_LINE_END}\x1b[{len(lines) - row}B"
                    for row, (line, old) in enumerate(zip(lines, self._lines, strict=True))
                    if line != old
                )
                # Keys that the user typed, for instance `^C`, are echoed in the line of the cursor.
                text = text and f"{text}\r{_TO_LINE_END}"
            self._lines = list(lines)
            self._width = width
            if text:
                with suppress(OSError):  # the terminal was closed
                    self._write(text)

    def print_above(self, text: str) -> None:
        """Print whole lines above the block."""
        with self._lock:
            width = self._current_width()
            top = self._top(width)
            if width != self._width:  # the block may not fit the new width; the next paint draws it again
                self._lines = []
                self._width = width
            self._write(top + _TO_SCREEN_END + text + _joined(self._lines))

    def release(self) -> None:
        """Leave the block on the screen, and never repaint it."""
        with self._lock:
            self._lines = []

    def _top(self, width: int) -> str:
        """The code that moves the cursor to the first line of the block, whose lines a narrower terminal may break."""
        reflown = width < self._width and self._reflows
        rows = sum(max(1, -(-cells(_CODES.sub("", line)) // width)) if reflown else 1 for line in self._lines)
        return f"\x1b[{rows}A\r" if rows else "\r"

    def _write(self, text: str) -> None:
        self._terminal.write(_BEGIN + text + _END)
        self._terminal.flush()


class StreamAbove(io.TextIOBase):
    """Replaces a stream that leads to the terminal: whole lines appear above the block at once."""

    def __init__(self, screen: Screen, stream: TextIO) -> None:
        self._screen = screen
        self._stream = stream
        self._rest = ""
        self._lock = threading.Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        with self._lock:
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
            if newline:
                self._screen.print_above(lines + newline)
        return len(text)

    def finish(self) -> None:
        """Print a last line that has no line end yet."""
        if self._rest:
            self.write("\n")


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\r\n" for line in lines)
