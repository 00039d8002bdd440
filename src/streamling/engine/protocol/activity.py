"""What a run is doing now: the open steps of the current epoch, and when something last advanced."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

log = logging.getLogger(__name__)

OPENING = "opening it"
"""The step in which a source is opened: nothing is read meanwhile."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has begun and not ended. `what` continues a sentence: `writing`; `node` is the id of its node.
    `trouble`: why it is being repeated."""

    what: str
    node: str | None
    since: float
    trouble: str | None = None


class Activity:
    """Written by the threads of the engine, read by any thread.

    A step that fails is not an advance: one that is retried forever must be noticed.
    """

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}
        self._numbers = itertools.count()
        self.advanced = time.monotonic()
        """When a step last ended well, or a batch of rows reached this process."""
        self._advanced: dict[str, float] = {}
        """By node: when it last said that a part of its work is done."""
        self._failing: dict[str | None, float] = {}
        self.count_tasks: Callable[[], object] | None = None
        """Something that changes when a task of Spark ends, once there is a session."""
        self._tasks: object = None
        self._counting: threading.Thread | None = None

    @contextmanager
    def step(self, what: str, node: str | None = None) -> Iterator[Callable[[str | None], None]]:
        """The step takes as long as the block, which gets a function for its trouble."""
        number = next(self._numbers)
        self._steps[number] = step = Step(what, node, time.monotonic())

        def note_trouble(trouble: str | None) -> None:
            self._steps[number] = replace(step, trouble=trouble)

        try:
            yield note_trouble
        except BaseException:
            self._failing.setdefault(node, self._steps[number].since)
            raise
        finally:
            del self._steps[number]
        self._failing.pop(node, None)
        self.advance()

    def advance(self, node: str | None = None) -> None:
        """A part of a step is done: of a step of the node with this id, or of any."""
        if node is not None:
            self._advanced[node] = time.monotonic()
        else:
            self.advanced = time.monotonic()

    def advanced_of(self, node: str) -> float | None:
        """When the node last said that a part of its work is done."""
        return self._advanced.get(node)

    def forget_failures(self) -> None:
        """The epoch whose steps have failed is given up: they do not fail any more."""
        self._failing.clear()

    def failing_since(self, node: str) -> float | None:
        """When the first step of the node began that has failed, if none has ended well since."""
        return self._failing.get(node)

    def look_at_tasks(self) -> None:
        """Notice that tasks of Spark have ended since the last call: they advance a step that takes minutes.

        A thread asks Java, which may not answer.
        """
        if self.count_tasks is not None and (self._counting is None or not self._counting.is_alive()):
            self._counting = threading.Thread(target=self._compare_tasks, name="count tasks", daemon=True)
            self._counting.start()

    def _compare_tasks(self) -> None:
        try:
            tasks = self.count_tasks() if self.count_tasks is not None else None
        except Exception as error:  # Java may be gone
            log.debug("the tasks of Spark cannot be counted: %s", error)
            return
        if tasks != self._tasks and self._tasks is not None:
            self.advance()
        self._tasks = tasks

    def open_steps(self) -> tuple[Step, ...]:
        """The oldest first."""
        return tuple(self._steps.copy().values())  # other threads begin and end steps meanwhile
