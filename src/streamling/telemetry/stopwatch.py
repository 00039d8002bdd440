"""A stopwatch for generators, whose work is mixed with that of what they read from and of what reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


class Stopwatch:
    """Measures how long a generator works: the time until it yields, without the time in which it waits for its
    input."""

    def __init__(self) -> None:
        self._seconds = 0.0

    @property
    def milliseconds(self) -> float:
        return max(self._seconds * 1000, 0.0)

    def output(self, items: Iterator[Item]) -> Iterator[Item]:
        return self._measured(items, 1)

    def input(self, items: Iterator[Item]) -> Iterator[Item]:
        return self._measured(items, -1)

    def _measured(self, items: Iterator[Item], sign: int) -> Iterator[Item]:
        while True:
            began = time.perf_counter()
            following = list(islice(items, 1))
            self._seconds += sign * (time.perf_counter() - began)
            if not following:
                return
            yield following.pop()
