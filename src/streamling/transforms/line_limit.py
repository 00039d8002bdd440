"""What functions of users log: not more lines than a log can take."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

MAX_LINES = 100
PERIOD_S = 60.0
MAX_LENGTH = 1000


class LineLimit:
    """Passes a hundred lines a minute on, and says how many it has left out."""

    def __init__(self, write: Callable[[str, int], None]) -> None:
        """`write` gets a line and its level."""
        self._write = write
        self._began = -PERIOD_S
        self._passed = 0
        self._left_out = 0

    def add(self, line: str, level: int = logging.INFO, times: int = 1) -> None:
        now = time.monotonic()
        if now - self._began >= PERIOD_S:
            self.tell()
            self._began, self._passed = now, 0
        if self._passed == MAX_LINES:
            self._left_out += times
            return
        self._passed += 1
        shown = line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]}..."
        self._write(f"{shown} ({times} times)" if times > 1 else shown, level)

    def leave_out(self, lines: int) -> None:
        self._left_out += lines

    def take_left_out(self) -> int:
        lines, self._left_out = self._left_out, 0
        return lines

    def tell(self) -> None:
        """Say how many lines were left out since the last time."""
        if lines := self.take_left_out():
            self._write(f"({lines} more lines were logged)", logging.INFO)
