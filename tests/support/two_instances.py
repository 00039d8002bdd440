"""Two processes of one pipeline share a topic while one of them is killed or suspended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, Protocol, TypeVar

from support.harness import PATIENCE_S, Child, Workspace

# A process counts as dead after three seconds; then its partitions are assigned again, and its epoch is recovered.
PROGRESS_S = 180.0


class Target(Protocol):
    """A pipeline that reads a topic, and what it writes to."""

    def start(self, **settings: object) -> Child: ...

    def producing(self) -> AbstractContextManager[None]:
        """Messages are sent while this lasts."""

    def arrival(self) -> Callable[[], bool]:
        """A function that tells whether everything sent by now has arrived."""

    def differences(self) -> list[str]:
        """Differences between the target and what was sent."""


AnyTarget = TypeVar("AnyTarget", bound=Target)


class TwoInstances(Generic[AnyTarget]):
    """Instance 0 and instance 1. One that ends without being told to is an error."""

    def __init__(self, place: Workspace, target: AnyTarget) -> None:
        self._place, self.target = place, target
        self._both: list[Child] = []

    @contextmanager
    def running(self, *starts: Callable[[], Child]) -> Iterator[None]:
        """Both work while messages are sent; at the end everything is delivered, and both have stopped in order."""
        with self.target.producing():
            self._both = [start() for start in starts] or [self.target.start(), self.target.start()]
            yield
        self.until(lambda: not self.target.differences(), "everything once", fatal=False)
        for child in self._both:
            child.signal(signal.SIGTERM)
            child.wait().succeeded()

    def at_work(self, number: int) -> None:
        """It has delivered something."""
        self._both[number].until_epochs(1)

    def kill(self, number: int) -> None:
        self._end(number, signal.SIGKILL)
        self._both[number] = self.target.start()

    def terminate(self, number: int) -> None:
        self._end(number, signal.SIGTERM)
        self._both[number] = self.target.start()

    def suspend(self, number: int, more_s: float = 0.0) -> None:
        """Suspend it until the other process has its partitions, and a few seconds more; then wake it up."""
        child, other = self._both[number], self._both[1 - number]
        before = other.stderr.count("assigned partitions")
        self._place.suspend(child)
        try:
            other.until(lambda: other.stderr.count("assigned partitions") > before, "the partitions of the other")
            time.sleep(more_s)
        finally:
            child.signal(signal.SIGCONT)

    def crash(self, number: int, start: Callable[[], Child]) -> None:
        """Kill it; the next one in its place dies by itself."""
        self._end(number, signal.SIGKILL)
        self._both[number] = start()
        self._died(self._both[number])
        self._both[number] = self.target.start()

    def relay(self, starts: Sequence[Callable[[], Child]]) -> None:
        """Both die by themselves, and so do their successors, until two are running that do not."""
        waiting, dying = list(starts), {0, 1}
        deadline = time.monotonic() + PATIENCE_S
        while dying:
            assert time.monotonic() < deadline, self._describe("no process has died")
            for number in sorted(dying):
                if self._both[number].process.poll() is None:
                    continue
                self._died(self._both[number])
                if not waiting:
                    dying.remove(number)
                self._both[number] = waiting.pop(0)() if waiting else self.target.start()
                deadline = time.monotonic() + PATIENCE_S
            time.sleep(0.1)

    def progress(self) -> None:
        """What was sent by now arrives, through whichever process: so both have worked, or one in place of both."""
        self.until(self.target.arrival(), "what was sent")

    def progress_after(self, error: str) -> None:
        """The same, where processes may end with an error; those are started again."""
        arrived, deadline = self.target.arrival(), time.monotonic() + PROGRESS_S
        while not arrived():
            assert time.monotonic() < deadline, self._describe("never saw: what was sent")
            for number, child in enumerate(self._both):
                if child.process.poll() is not None:
                    finished = child.wait()
                    assert finished.code == 1 and error in finished.stderr, self._describe("one has ended")
                    self._both[number] = self.target.start()
            time.sleep(0.3)

    def until(self, condition: Callable[[], bool], what: str, *, fatal: bool = True) -> None:
        deadline = time.monotonic() + PROGRESS_S
        while not condition():
            for child in self._both:
                assert child.process.poll() is None, self._describe("one has ended")
            if time.monotonic() > deadline:
                assert not fatal, self._describe(f"never saw: {what}")
                return
            time.sleep(0.3)

    def _end(self, number: int, signal_: signal.Signals) -> None:
        child = self._both[number]
        child.signal(signal_)
        finished = child.wait()
        owed = -signal_ if signal_ is signal.SIGKILL else 0
        assert finished.code == owed, f"exit code {finished.code}\n{finished.stderr[-4000:]}"

    def _died(self, child: Child) -> None:
        finished = child.wait()
        assert finished.code == -signal.SIGKILL, f"exit code {finished.code}\n{finished.stderr[-4000:]}"

    def _describe(self, what: str) -> str:
        ends = [f"exit code {child.process.poll()}\n{child.stderr[-4000:]}" for child in self._both]
        return "\n\n".join([what, *ends])
