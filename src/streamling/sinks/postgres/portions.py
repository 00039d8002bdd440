"""How many rows a statement takes: all of a step, until one is not done in its time.

A target may be slow: triggers, many indexes, a long way. A statement that was cut off would be cut off again for ever,
so the next attempt has smaller ones. All of them stay in the transaction of their epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamling.clients.postgres import TimedOut

if TYPE_CHECKING:
    from streamling.sinks.postgres.rounds import Places

log = logging.getLogger(__name__)
_ALL = 1 << 31
_LESS = 4
_MORE = 2
# Twice as many rows may take twice as long, and on a busy day twice as long again.
_ROOM = 4


class Portion:
    """For one kind of statement. Within an epoch the portions only become smaller, else rows that are quickly written
    would make them too large for slow ones time and again. They grow with epochs that left enough time."""

    def __init__(self, what: str, least: int, limit_s: float) -> None:
        """`least`: with fewer rows it is not their number that takes long. A `limit_s` of 0 is none."""
        self._what, self._least, self._limit_s = what, least, limit_s
        self._longest_s = 0.0
        self.rows = _ALL

    def cut(self, places: Places) -> Iterator[Places]:
        for start in range(0, len(places), self.rows):
            yield places[start : start + self.rows]

    @contextmanager
    def timed(self, count: int) -> Iterator[None]:
        """Around the writing of so many rows."""
        began = time.monotonic()
        try:
            yield
        except TimedOut:
            self._shrink(count)
            raise
        if count >= self.rows:
            self._longest_s = max(self._longest_s, time.monotonic() - began)

    def settled(self) -> None:
        """An epoch is committed."""
        if self._longest_s > 0 and (not self._limit_s or self._longest_s * _ROOM < self._limit_s):
            self.rows = min(self.rows * _MORE, _ALL)
        self._longest_s = 0.0

    def _shrink(self, count: int) -> None:
        fewer = max(count // _LESS, self._least)
        if fewer < count:
            log.warning("%s: %d rows take too long for one statement, the next ones have %d", self._what, count, fewer)
            self.rows = fewer
