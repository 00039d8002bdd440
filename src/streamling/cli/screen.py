"""A block of lines at the bottom of the terminal that is repainted in place; everything else is printed above it.

The cursor is never hidden: it rests in the line below the block. So whatever ends the process, even `kill -9`, leaves a
terminal in which the prompt appears where it should.
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

# Terminals that know it show what stands between as one change; the others ignore it.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_CODES = re.compile(r"\x1b\[[0-9;]*m")
_TO_LINE_END, _TO_SCREEN_END = "\x1b[K", "\x1b[J"


class Screen:
    """The block. Lines must be shorter than the terminal is wide, and fewer than it is high."""

    def __init__(self, terminal: TextIO, width: Callable[[], int]) -> None:
        self._terminal, self._current_width = terminal, width
        # Nearly all terminals break lines anew when they become narrower; these do not.
        self._reflows = "XTERM_VERSION" not in os.environ and os.environ.get("TERM") != "linux"
        self._lock = threading.RLock()
        self._lines: list[str] = []
        self._width = 0

    def paint(self, lines: Sequence[str], width: int) -> None:
        """Show these lines. Only those that have changed are written, unless their number or the width has."""
        with self._lock:
            if len(lines) != len(self._lines) or width != self._width:
                text = self._top(width) + _TO_SCREEN_END + _joined(lines)
            else:
                text = "".join(
                    f"\x1b[{len(lines) - row}A\r{line}{_TO_LINE_END}\x1b[{len(lines) - row}B"
                    for row, (line, old) in enumerate(zip(lines, self._lines, strict=True))
                    if line != old
                )
                # What somebody typed, `^C` for instance, stands in the line of the cursor.
                text = text and f"{text}\r{_TO_LINE_END}"
            self._lines, self._width = list(lines), width
            if text:
                with suppress(OSError):  # the terminal is gone, and so is who looked at it
                    self._write(text)

    def above(self, text: str) -> None:
        """Print whole lines above the block."""
        with self._lock:
            width = self._current_width()
            top = self._top(width)
            if width != self._width:  # the block does not fit any more; the next one will
                self._lines, self._width = [], width
            self._write(top + _TO_SCREEN_END + text + _joined(self._lines))

    def release(self) -> None:
        """Leave the block where it is; it is not ours any more."""
        with self._lock:
            self._lines = []

    def _top(self, width: int) -> str:
        """To the first line of the block, which a terminal that has become narrower may have broken up."""
        reflown = width < self._width and self._reflows
        rows = sum(max(1, -(-cells(_CODES.sub("", line)) // width)) if reflown else 1 for line in self._lines)
        return f"\x1b[{rows}A\r" if rows else "\r"

    def _write(self, text: str) -> None:
        self._terminal.write(_BEGIN + text + _END)
        self._terminal.flush()


class Above(io.TextIOBase):
    """Takes the place of a stream that leads to the terminal: whole lines appear above the block at once."""

    def __init__(self, screen: Screen, stream: TextIO) -> None:
        self._screen, self._stream, self._rest = screen, stream, ""
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
                self._screen.above(lines + newline)
        return len(text)

    def finish(self) -> None:
        """Print what has no end of line yet."""
        if self._rest:
            self.write("\n")


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\r\n" for line in lines)
