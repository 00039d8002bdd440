"""How many rows one statement writes: all rows of a round, until a statement exceeds its timeout.

The target may be slow: triggers, many indexes, a slow network. A statement that timed out would time out again on every
retry, so the next attempt cuts the rows into smaller portions. All portions stay in the transaction of their epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamling.clients.postgres import StatementTimeout

if TYPE_CHECKING:
    from streamling.sinks.postgres.rounds import Indexes

log = logging.getLogger(__name__)
# If so few rows exceed the statement timeout, they wait for a lock. For a slower table, `batch_size` can be smaller.
MIN_PORTION_ROWS = 100
_ALL_ROWS = 1 << 31
_SHRINK_FACTOR = 4
_GROWTH_FACTOR = 2
# Grow only if the slowest statement took less than a quarter of the limit: doubling the rows may double the time, and
# load may double it again.
_SAFETY_FACTOR = 4


class Portions:
    """The portion size of one kind of statement.

    Within an epoch it only shrinks: otherwise rows that are written quickly would make portions too large for slow
    rows again and again. It grows after epochs that left enough time.
    """

    def __init__(self, owner: str, min_rows: int, limit_s: float) -> None:
        """`owner` is named in the log. With `min_rows` rows or fewer the row count is not why a statement is slow.
        `limit_s` 0: no limit."""
        self._owner = owner
        self._min_rows = min_rows
        self._limit_s = limit_s
        self._longest_s = 0.0
        self.rows = _ALL_ROWS
        self.advance: Callable[[], object] = lambda: None
        """Called after every statement: an epoch of many of them may take long."""

    def cut(self, indexes: Indexes) -> Iterator[Indexes]:
        for start in range(0, len(indexes), self.rows):
            yield indexes[start : start + self.rows]

    @contextmanager
    def timed(self, count: int) -> Iterator[None]:
        """Measures the statement that writes `count` rows."""
        began = time.monotonic()
        try:
            yield
        except StatementTimeout:
            self._shrink(count)
            raise
        self.advance()
        if count >= self.rows:
            self._longest_s = max(self._longest_s, time.monotonic() - began)

    def epoch_committed(self) -> None:
        if self._longest_s > 0 and (not self._limit_s or self._longest_s * _SAFETY_FACTOR < self._limit_s):
            self.rows = min(self.rows * _GROWTH_FACTOR, _ALL_ROWS)
        self._longest_s = 0.0

    def _shrink(self, count: int) -> None:
        rows = max(count // _SHRINK_FACTOR, self._min_rows)
        if rows < count:
            message = "%s: %d rows take too long for one statement; the next statements write %d rows each"
            log.warning(message, self._owner, count, rows)
            self.rows = rows
