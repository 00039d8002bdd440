"""What people see while servers are fetched and started: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from streamling.cli.terminal import can_draw, has_colours
from streamling.dev.onlooker import Onlooker

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# A log that is read later should show that something happens, not every step of it.
_LINE_SECONDS = 5.0


class Watching(Onlooker):
    """On standard error, so that standard output is what was asked for. A context manager: the bars end with it."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._told: dict[str, float] = {}

    def __enter__(self) -> Watching:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def said(self, text: str) -> None:
        if self._bars is not None:
            self._bars.console.print(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def fetching(self, what: str, done: int, total: int) -> None:
        if can_draw(sys.stderr):
            self._bar(what, done, total)
        else:
            self._line(what, done, total)

    def _bar(self, what: str, done: int, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bars is None:
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            terminal = has_colours(sys.stderr) or None
            console = Console(file=sys.stderr, force_terminal=terminal, markup=False, highlight=False, emoji=False)
            self._bars = Progress(*columns, console=console)
            self._bars.start()
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(f"fetching {what}", total=total)
        self._bars.update(self._tasks[what], completed=done)
        if self._bars.finished:
            self._finish()

    def _finish(self) -> None:
        """Leave the bars as they are, and the terminal to whoever prints next."""
        if self._bars is not None:
            self._bars.stop()
            self._bars, self._tasks = None, {}

    def _line(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total:
            self.said(f"fetched {what}, {total / 1e6:.0f} MB")
        elif now - self._told.get(what, now - _LINE_SECONDS) >= _LINE_SECONDS:
            self._told[what] = now
            self.said(f"fetching {what}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")
