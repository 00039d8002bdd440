"""What the function of a node prints: lines for the log, not more of them than a log can take."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable
from typing import Any

MAX_LINES = 100
PERIOD_S = 60.0
MAX_LENGTH = 1000


class LineLimit:
    """Passes a hundred lines a minute on, and says how many it has left out."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._began = -PERIOD_S
        self._passed = 0
        self._left_out = 0

    def add(self, line: str) -> None:
        now = time.monotonic()
        if now - self._began >= PERIOD_S:
            self.tell()
            self._began, self._passed = now, 0
        if self._passed < MAX_LINES:
            self._passed += 1
            self._write(line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]}...")
        else:
            self._left_out += 1

    def leave_out(self, lines: int) -> None:
        self._left_out += lines

    def take_left_out(self) -> int:
        lines, self._left_out = self._left_out, 0
        return lines

    def tell(self) -> None:
        """Say how many lines were left out since the last time."""
        if lines := self.take_left_out():
            self._write(f"({lines} more lines were printed)")


class Printer:
    """The `print` of a program. In the driver lines go to the log; in a worker they are kept until `take`."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._partial = ""
        self._limit = LineLimit(self._kept.append)
        self._passes_on = False

    def write_to(self, limit: LineLimit) -> None:
        """Pass lines on at once from now on, and those that were kept so far."""
        for line in self.take()[0]:
            limit.add(line)
        self._limit = limit
        self._passes_on = True

    def print(self, *values: object, sep: str | None = None, end: str | None = None, **options: Any) -> None:
        if options.get("file") is not None:
            builtins.print(*values, sep=sep, end=end, **options)
            return
        text = (" " if sep is None else sep).join(map(str, values)) + ("\n" if end is None else end)
        *lines, rest = text.split("\n")
        for line in lines:
            self._limit.add(self._partial + line)
            self._partial = ""
        # Of a line that never ends, no more is kept than is shown.
        self._partial += rest[: MAX_LENGTH + 1 - len(self._partial)]

    def take(self) -> tuple[list[str], int]:
        """The lines that were kept, and how many others there were."""
        if self._passes_on:
            return [], 0
        lines = list(self._kept)
        self._kept.clear()
        return lines, self._limit.take_left_out()
