"""Whether a run advances: alive but stuck is found, named and reported.

A run is stuck if a step of an epoch does not end, if a node has trouble and gets no rows, if a source does not return
from reading, or if the start does not end. A source without new rows is healthy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from streamling.engine.protocol.activity import Step
from streamling.engine.protocol.progress import NodeProgress, Phase, Progress
from streamling.errors import NO_PROGRESS, TransientError
from streamling.spec.mask import mask_text
from streamling.spec.pipeline import Role
from streamling.spec.settings import Settings

log = logging.getLogger(__name__)

# A deadline is minutes: looking at it every few seconds costs nothing and is exact enough.
_LONGEST_INTERVAL_S, _SHORTEST_INTERVAL_S = 5.0, 0.1


@dataclass(frozen=True, slots=True)
class Wait:
    """What a run waits for: the node, why, and for how many seconds."""

    node: str | None
    reason: str
    seconds: float

    @property
    def sentence(self) -> str:
        subject = f"'{self.node}' has" if self.node is not None else "the pipeline has"
        return f"{subject} made no progress for {self.seconds:.0f} s: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A trouble that was seen: since when, and how many rows the node had then."""

    since: float
    rows: int | None


class Health:
    """Judges a run by its progress. Any thread may ask."""

    def __init__(self, progress: Progress, deadline_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._deadline_s = deadline_s
        self._clock = clock
        self._troubles: dict[tuple[Role, str], _Trouble] = {}
        self._lock = threading.Lock()

    def longest_wait(self) -> Wait | None:
        """What the run has been waiting for the longest; None if it waits for nothing but new rows."""
        with self._lock:
            return max(self._waits(self._clock()), key=lambda wait: wait.seconds, default=None)

    def stall(self) -> Wait | None:
        """The longest wait, if it is over the deadline."""
        wait = self.longest_wait()
        return wait if wait is not None and wait.seconds >= self._deadline_s else None

    @property
    def ready(self) -> bool:
        """Whether the pipeline runs and makes progress."""
        running = self._progress.phase is Phase.RUNNING and self._progress.failure is None
        return running and self.stall() is None

    def starting(self) -> tuple[str | None, str | None]:
        """While the pipeline starts: what it does now, or why that is being repeated, and the node that it is about."""
        steps = self._progress.activity.open_steps()
        return (self._node_of(steps[-1]), mask_text(steps[-1].trouble or steps[-1].what)) if steps else (None, None)

    def look_at_tasks(self) -> None:
        """Let tasks of Spark that have ended count as an advance. Call it from time to time while something waits."""
        self._progress.activity.look_at_tasks()

    def _waits(self, now: float) -> Iterator[Wait]:
        snapshot = self._progress.snapshot()
        if snapshot.phase is Phase.STARTING:
            name, what = self.starting()
            yield Wait(name, f"it is starting: {what}" if what else "it is starting", snapshot.seconds)
        if snapshot.phase is not Phase.RUNNING:
            return
        troubled = set()
        for id_, node in zip(self._progress.node_ids(), snapshot.nodes, strict=True):
            if (since := self._trouble_since(id_, node, now)) is not None:
                troubled.add(node.name)
                yield Wait(node.name, node.trouble or "", now - since)
        # A trouble says more than a step that waits because of it.
        waits = (*self._reading_waits(now), *self._step_waits(now))
        yield from (wait for wait in waits if wait.node not in troubled)

    def _trouble_since(self, id_: str, node: NodeProgress, now: float) -> float | None:
        """When the trouble of a node began, if it got no rows since. Queries go on with the last version of a lookup
        that cannot be read."""
        key = (node.role, node.name)
        if node.trouble is None or node.name in self._progress.lookups:
            self._troubles.pop(key, None)
            return None
        known = self._troubles.get(key)
        if known is None or known.rows != node.throughput:
            known = self._troubles[key] = _Trouble(now, node.throughput)
        activity = self._progress.activity
        failing = activity.failing_since(id_)
        if failing is not None:  # what a step does again and again is no advance
            return min(known.since, failing)
        return max(known.since, activity.advanced_of(id_) or known.since)

    def _reading_waits(self, now: float) -> Iterator[Wait]:
        for node, since in self._progress.reading_since().items():
            yield Wait(node, "its source does not return from reading", now - since)

    def _step_waits(self, now: float) -> Iterator[Wait]:
        """Steps of nodes, or else the newest: one without a node may be made of many."""
        activity = self._progress.activity
        steps = activity.open_steps()
        of_nodes = [step for step in steps if step.node is not None]
        for step in of_nodes or steps[-1:]:
            advanced = max(activity.advanced, activity.advanced_of(step.node or "") or 0.0)
            why = f"is being repeated: {mask_text(step.trouble)}" if step.trouble else "does not end"
            yield Wait(self._node_of(step), f"{step.what} {why}", now - max(step.since, advanced))

    def _node_of(self, step: Step) -> str | None:
        return self._progress.node_name(step.node) if step.node is not None else None


class ProgressWatch:
    """A thread that looks at the health of a run every few seconds. A context manager.

    A stall is logged once, and so is its end. After `progress_exit_secs`, if set, `give_up` gets an error: nothing else
    would end a process that is stuck.
    """

    def __init__(
        self, health: Health, settings: Settings, give_up: Callable[[TransientError], object] | None = None
    ) -> None:
        self._deadline_s = settings.progress_deadline_secs
        self._exit_s = settings.progress_exit_secs if give_up is not None else None
        self._give_up = give_up
        self._shortest_s = min(self._deadline_s, self._exit_s or self._deadline_s)
        """The first of the deadlines."""
        self._health = health
        self._stalled: Wait | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> ProgressWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        interval = max(_SHORTEST_INTERVAL_S, min(self._shortest_s / 8, _LONGEST_INTERVAL_S))
        while not self._over.wait(interval):
            try:
                ended = self._look()
            except Exception as error:  # a fault of the watch must not stop the run
                log.debug("the progress could not be checked: %s", error)
                continue
            if ended:
                return

    def _look(self) -> bool:
        """Returns True if the run was given up."""
        wait = self._health.longest_wait()
        if wait is not None and wait.seconds >= self._shortest_s / 4:
            self._health.look_at_tasks()
        if wait is not None and self._exit_s is not None and wait.seconds >= self._exit_s and self._give_up is not None:
            self._give_up(TransientError(NO_PROGRESS, wait.sentence, node=wait.node))
            return True
        stalled = wait if wait is not None and wait.seconds >= self._deadline_s else None
        if stalled is not None and (self._stalled is None or self._stalled.node != stalled.node):
            log.warning("%s", stalled.sentence)
        if stalled is None and self._stalled is not None and self._health.ready:  # it may have failed
            log.info("the pipeline makes progress again")
        self._stalled = stalled
        return False
