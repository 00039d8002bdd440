"""The display of a run on a terminal: a thread that reads the progress and repaints the table."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TextIO

from streamling.cli.screen import Screen, StreamAbove
from streamling.cli.table import Glyphs, View, lines
from streamling.cli.terminal import has_colours, size, styled
from streamling.engine.process.signals import listen
from streamling.engine.protocol.progress import Phase, Progress, Snapshot

log = logging.getLogger(__name__)

# Often enough to look alive, seldom enough to cost nothing; while nothing changes, only the clock is repainted.
_LIVELY_S, _IDLE_S = 0.22, 1.0
_IDLE_AFTER_S = 3.0
# Rates are averages over this time.
_WINDOW_S = 8.0
# When all rows are done, the run still has to stop. The other phases have their own names.
_WORDS = {Phase.STARTING: "starting Spark", Phase.DONE: "stopping"}


def phase_word(phase: Phase) -> str:
    """What a run is doing, in the header of its table."""
    return _WORDS.get(phase, phase.value)


class Meter:
    """The rate at which a number grows, over the last seconds. It grows in steps, so only the steps are stored."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque()

    def see(self, now: float, value: int) -> None:
        if not self._steps or self._steps[-1][1] != value:
            self._steps.append((now, value))
        while len(self._steps) > 2 and self._steps[1][0] < now - _WINDOW_S:
            self._steps.popleft()

    def rate(self, now: float) -> float:
        """Per second; 0 if the last step is too long ago."""
        if len(self._steps) < 2 or self._steps[-1][0] < now - _WINDOW_S:
            return 0.0
        (since, first), (_, last) = self._steps[0], self._steps[-1]
        return max(0.0, (last - first) / max(now - since, 0.001))


class Painter:
    """Draws snapshots of a run as a table on standard error."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[str, str] = {}
        """Where the rows of a node come from or go to, by node name."""
        self.terminal = sys.stderr
        self.screen = Screen(self.terminal, lambda: size(self.terminal)[0])
        self._glyphs = Glyphs.for_encoding(self.terminal.encoding)
        self._meters: dict[str, Meter] = defaultdict(Meter)

    def draw(self, snapshot: Snapshot, word: str | None = None) -> None:
        """`word` says how the run has ended."""
        width, height = size(self.terminal)
        table = lines(self._view(snapshot, word), width, height, self._glyphs)
        colours = has_colours(self.terminal)
        self.screen.paint([styled(line, colours=colours) for line in table], width)

    def clear(self) -> None:
        self.screen.paint([], size(self.terminal)[0])

    def _view(self, snapshot: Snapshot, final_word: str | None) -> View:
        now = time.monotonic()
        rates: dict[str, float] = {}
        left: dict[str, float] = {}
        rate = 0.0
        if snapshot.phase is not Phase.STARTING:
            rates = {node.name: self._rate(f"rows {node.name}", now, node.throughput or 0) for node in snapshot.nodes}
            rate = self._rate("rows", now, snapshot.rows)
        extents = {node.name: node.extent for node in snapshot.nodes if node.extent is not None}
        for name, extent in extents.items():
            if speed := self._rate(f"done {name}", now, extent.done):
                left[name] = (extent.total - extent.done) / speed
        if extents and (speed := self._rate("done", now, sum(e.done for e in extents.values()))):
            left[""] = sum(e.total - e.done for e in extents.values()) / speed
        if final_word is not None:  # averages
            rate = snapshot.per_second(snapshot.rows)
            rates = {node.name: snapshot.per_second(node.throughput or 0) for node in snapshot.nodes}
        word = final_word or phase_word(snapshot.phase)
        return View(self.file, snapshot, word, rates, rate, left, self.places)

    def _rate(self, name: str, now: float, value: int) -> float:
        meter = self._meters[name]
        meter.see(now, value)
        return meter.rate(now)


class Pace:
    """How long to wait before the next snapshot: less while something changes."""

    def __init__(self) -> None:
        self._last: object = None
        self._changed = time.monotonic()

    def pause(self, snapshot: Snapshot) -> float:
        now = time.monotonic()
        if (current := (snapshot.phase, snapshot.nodes, snapshot.epochs)) != self._last:
            self._last = current
            self._changed = now
        return _LIVELY_S if now - self._changed < _IDLE_AFTER_S else _IDLE_S


class Display:
    """A context manager: shows a run inside of the block, and leaves the last table on the screen."""

    def __init__(self, progress: Progress, file: str) -> None:
        self._progress = progress
        self._painter = Painter(file)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repaint, name="display", daemon=True)
        self._redirection = ExitStack()

    def __enter__(self) -> Display:
        self._redirection.enter_context(_redirected(self._painter.screen))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        failed = error is not None
        planned = self._progress.plan is not None
        if failed and not planned:  # there are no nodes to show, only the error that follows
            self._painter.clear()
        else:
            self._try_draw("failed" if failed else "stopped" if listen().received is not None else "done")
        self._redirection.close()
        self._painter.screen.release()
        if failed and planned:
            print(file=self._painter.terminal)

    def _repaint(self) -> None:
        """The thread: draws until the run is over."""
        pace = Pace()
        pause = 0.0
        while not self._over.wait(pause) and (snapshot := self._try_draw()) is not None:
            pause = pace.pause(snapshot)

    def _try_draw(self, word: str | None = None) -> Snapshot | None:
        try:
            snapshot = self._progress.snapshot()
            self._painter.places = self._painter.places or self._progress.places()
            self._painter.draw(snapshot, word)
        except Exception as error:  # a fault of the display must not stop the run
            log.warning("the display has stopped: %s", error)
            return None
        return snapshot


@contextmanager
def _redirected(screen: Screen) -> Iterator[None]:
    """Print what is written to the terminal above the table: rows, warnings, errors."""
    out, err = sys.stdout, sys.stderr
    above_err = StreamAbove(screen, err)
    above_out = StreamAbove(screen, out) if _is_same_terminal(out, err) else None
    handlers = [h for h in logging.getLogger().handlers if isinstance(h, logging.StreamHandler) and h.stream is err]
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        # The table shows what lines of level INFO would say.
        handler.setLevel(max(handler.level, logging.WARNING))
        handler.setStream(above_err)
    out.flush()
    sys.stderr = above_err
    if above_out is not None:
        sys.stdout = above_out
    try:
        yield
    finally:
        for stream in filter(None, (above_out, above_err)):
            stream.finish()
        sys.stdout, sys.stderr = out, err
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
            handler.setStream(err)


def _is_same_terminal(out: TextIO, err: TextIO) -> bool:
    try:
        return out.isatty() and os.ttyname(out.fileno()) == os.ttyname(err.fileno())
    except (OSError, ValueError):
        return False
