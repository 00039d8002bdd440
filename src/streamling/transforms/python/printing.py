"""What the function of a node prints: lines for the log."""

from __future__ import annotations

import builtins
from typing import Any

from streamling.transforms.line_limit import MAX_LENGTH, LineLimit


class Printer:
    """The `print` of a program. In the driver lines go to the log; in a worker they are kept until `take`."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._partial = ""
        self._limit = LineLimit(lambda line, level: self._kept.append(line))
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
