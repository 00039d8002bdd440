"""Where the time of an epoch goes: measured while it runs, by the threads that work on it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


class EpochClock:
    """The seconds that nodes compute and that sinks wait for rows. Any thread may add to it."""

    def __init__(self) -> None:
        self.began = time.time()
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.computed: defaultdict[str, float] = defaultdict(float)
        """By node: seconds in which its rows were computed; those of a fused query are in the node that reads it."""
        self.waited: defaultdict[str, float] = defaultdict(float)
        """By sink: seconds in which it waited for the rows of its input."""
        self.flushed: defaultdict[str, float] = defaultdict(float)
        """By sink: seconds of its writes and commits, including `waited`."""
        self.committed: dict[str, float] = {}
        """By sink: seconds from the beginning of the epoch to its commit."""

    @property
    def seconds(self) -> float:
        """Since the epoch began."""
        return time.monotonic() - self._began

    def add_computed(self, node: str, seconds: float) -> None:
        with self._lock:
            self.computed[node] += seconds

    @contextmanager
    def computing(self, node: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add_computed(node, time.perf_counter() - began)

    @contextmanager
    def waiting(self, sink: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.waited[sink] += time.perf_counter() - began

    @contextmanager
    def flushing(self, sink: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.flushed[sink] += time.perf_counter() - began

    def note_commit(self, sink: str) -> None:
        self.committed[sink] = self.seconds

    def while_pulled(self, sink: str, items: Iterator[Item]) -> Iterator[Item]:
        """Pass items on, and measure how long the sink waits for them."""
        return _measured(items, partial(self.waiting, sink))

    def while_computed(self, node: str, items: Iterator[Item]) -> Iterator[Item]:
        """Pass items on, and measure how long the node computes them."""
        return _measured(items, partial(self.computing, node))


def _measured(items: Iterator[Item], measure: Callable[[], AbstractContextManager[None]]) -> Iterator[Item]:
    while True:
        with measure():
            following = list(islice(items, 1))
        if not following:
            return
        yield following.pop()
