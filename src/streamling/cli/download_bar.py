"""The progress of downloads and starts: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from streamling.cli.terminal import can_draw, has_colours
from streamling.dev.observer import Observer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# In a log file a few lines show that the download proceeds; more would only fill it.
_LINE_SECONDS = 5.0


class DownloadBar(Observer):
    """Prints to standard error, because standard output is for results. A context manager: the bars end with it."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._printed: dict[str, float] = {}
        """When the last line of a download was printed."""

    def __enter__(self) -> DownloadBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def message(self, text: str) -> None:
        if self._bars is not None:
            self._bars.console.print(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def progress(self, what: str, done: int, total: int) -> None:
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
            self._tasks[what] = self._bars.add_task(f"downloading {what}", total=total)
        self._bars.update(self._tasks[what], completed=done)
        if self._bars.finished:
            self._finish()

    def _finish(self) -> None:
        """Leave the bars on the terminal as they are."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._tasks = {}

    def _line(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total:
            self.message(f"downloaded {what}, {total / 1e6:.0f} MB")
        elif now - self._printed.get(what, now - _LINE_SECONDS) >= _LINE_SECONDS:
            self._printed[what] = now
            self.message(f"downloading {what}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")
