"""The display of a run on a terminal: a thread that looks at the progress and repaints what has changed."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

from streamling.cli.places import place_of
from streamling.cli.screen import Above, Screen
from streamling.cli.table import Glyphs, Line, View, lines
from streamling.cli.terminal import console, size
from streamling.engine.process.signals import listen
from streamling.engine.protocol.progress import Phase, Progress, Snapshot

log = logging.getLogger(__name__)

# Fast enough to look alive, and slow enough to cost nothing; when nothing moves, only the clock does.
_LIVELY_S, _IDLE_S = 0.22, 1.0
_IDLE_AFTER_S = 3.0
_WINDOW_S = 8.0


class Meter:
    """How fast a number grows, over the last seconds. It grows in steps, so only steps are remembered."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque()

    def see(self, now: float, value: int) -> None:
        if not self._steps or self._steps[-1][1] != value:
            self._steps.append((now, value))
        while len(self._steps) > 2 and self._steps[1][0] < now - _WINDOW_S:
            self._steps.popleft()

    def rate(self, now: float) -> float:
        """Per second; none after a while without a step."""
        if len(self._steps) < 2 or self._steps[-1][0] < now - _WINDOW_S:
            return 0.0
        (since, first), (_, last) = self._steps[0], self._steps[-1]
        return max(0.0, (last - first) / max(now - since, 0.001))


class Live:
    """Shows a run for as long as the block lasts, and leaves its last state on the screen."""

    def __init__(self, progress: Progress, file: str) -> None:
        self._progress, self._file, self._terminal = progress, file, sys.stderr
        self._screen = Screen(self._terminal, lambda: size(self._terminal)[0])
        self._glyphs = Glyphs.for_encoding(sys.stderr.encoding)
        self._meters: dict[str, Meter] = {}
        self._places: dict[str, str] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="display", daemon=True)
        self._redirected = _redirected(self._screen)
        self._styles: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> Live:
        self._redirected.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        failed, known = error is not None, self._progress.plan is not None
        if failed and not known:  # there is nothing to be seen yet but the error that follows
            self._screen.paint([], size(self._terminal)[0])
        else:
            self._drawn("failed" if failed else "stopped" if listen().received is not None else "done")
        self._redirected.__exit__(None, None, None)
        self._screen.release()
        if failed and known:
            print(file=self._terminal)

    def _watch(self) -> None:
        seen: object = None
        moved = time.monotonic()
        pause = 0.0
        while not self._over.wait(pause) and (snapshot := self._drawn()) is not None:
            now = time.monotonic()
            if (current := (snapshot.phase, snapshot.nodes, snapshot.epochs)) != seen:
                seen, moved = current, now
            pause = _LIVELY_S if now - moved < _IDLE_AFTER_S else _IDLE_S

    def _drawn(self, word: str | None = None) -> Snapshot | None:
        try:
            return self._draw(word)
        except Exception as error:  # what is shown must not be harmed by showing it
            log.warning("the display has stopped: %s", error)
            return None

    def _draw(self, word: str | None = None) -> Snapshot:
        snapshot = self._progress.snapshot()
        width, height = size(self._terminal)
        view = self._view(snapshot, word)
        self._screen.paint([self._styled(line) for line in lines(view, width, height, self._glyphs)], width)
        return snapshot

    def _view(self, snapshot: Snapshot, word: str | None) -> View:
        now = time.monotonic()
        moving = snapshot.phase is not Phase.STARTING
        rates, left = {}, {}
        for node in snapshot.nodes:
            rates[node.name] = self._rate(f"rows {node.name}", now, node.throughput or 0) if moving else 0.0
            if node.extent is not None and (speed := self._rate(f"done {node.name}", now, node.extent.done)):
                left[node.name] = (node.extent.total - node.extent.done) / speed
        rate = self._rate("rows", now, snapshot.rows) if moving else 0.0
        extents = [node.extent for node in snapshot.nodes if node.extent is not None]
        if extents and (speed := self._rate("done", now, sum(e.done for e in extents))):
            left[""] = sum(e.total - e.done for e in extents) / speed
        if word is not None:  # over: what counts now is the whole
            seconds = max(snapshot.seconds, 0.001)
            rate = snapshot.rows / seconds
            rates = {node.name: (node.throughput or 0) / seconds for node in snapshot.nodes}
        phase = "stopping" if snapshot.phase is Phase.DONE else snapshot.phase.value
        return View(self._file, snapshot, word or phase, rates, rate, left, self._known_places())

    def _rate(self, name: str, now: float, value: int) -> float:
        meter = self._meters.setdefault(name, Meter())
        meter.see(now, value)
        return meter.rate(now)

    def _known_places(self) -> dict[str, str]:
        if self._places is None and (plan := self._progress.plan) is not None:
            self._places = {node.spec.name: place_of(node.spec) or "" for node in plan.nodes}
        return self._places or {}

    def _styled(self, line: Line) -> str:
        return "".join(
            f"{self._codes(style)[0]}{text}{self._codes(style)[1]}" if style else text for text, style in line
        )

    def _codes(self, style: str) -> tuple[str, str]:
        """What turns a style on and off on this terminal; asked of rich once for each."""
        if style not in self._styles:
            from rich.text import Text

            shown = console(self._terminal)
            with shown.capture() as captured:
                shown.print(Text("|", style=style), end="")
            on, _, off = captured.get().partition("|")
            self._styles[style] = on, off
        return self._styles[style]


@contextmanager
def _redirected(screen: Screen) -> Iterator[None]:
    """What is written to the terminal in the meantime appears above the display: rows, warnings, errors."""
    out, err = sys.stdout, sys.stderr
    above_err = Above(screen, err)
    above_out = Above(screen, out) if _same_terminal(out, err) else None
    handlers = [h for h in logging.getLogger().handlers if isinstance(h, logging.StreamHandler) and h.stream is err]
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        # The display says what information lines would.
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


def _same_terminal(out: TextIO, err: TextIO) -> bool:
    try:
        return out.isatty() and os.ttyname(out.fileno()) == os.ttyname(err.fileno())
    except (OSError, ValueError):
        return False
