"""How large the next epoch may be, and whether Python workers are there to read it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.connector import Epoch
from streamling.engine.process.cores import cores
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Below this a part of its own costs more than it gains.
_LEAST_PART_ROWS = 10_000
# Starting Python workers takes about 4 s on two idle cores, up to 6 s if small epochs compete for them. So reading
# pauses while they start, for at most this long.
_UNDISTURBED_S = 10.0
# Where nothing has to be collected in the driver, rows pass through Java and the workers in small batches: only the
# time an epoch takes, and what a crash repeats, speak against large ones.
_STREAMED = 16
# What a collected part comes to stands in Java's memory as a whole, some of them at a time.
_PART_BYTES = 16 << 20
# A first look at rows of unknown length.
FIRST_ROWS = 1000
# An epoch whose rows in the driver are so many times the budget is cut into smaller ones.
_TOO_LARGE = 4
# An epoch of fewer bytes than this is not too much for any machine: something else ended the process.
_LEAST_BYTES = 64 << 10
# How the size recovers from epoch to epoch once it was cut down: quickly while it is small, slowly where it may hurt.
_CAREFUL_BYTES = 1 << 20
_QUICK_GROWTH, _CAREFUL_GROWTH = 1.25, 1.05
# How near it comes to what was too much, and how slowly that is forgotten: in some hundred epochs.
_NEAR, _FORGETTING = 0.8, 1.005


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of one source in the next epoch. Up to `driver_rows` an epoch is computed in the driver."""

    driver_rows: int
    rows: int
    bytes: int
    """Of the rows that the driver reads ahead."""
    large_bytes: int
    """Of the rows that the executors read."""
    parts: int
    part_rows: int
    part_bytes: int | None
    """None: it does not matter how large a part is."""
    first_rows: int | None = None
    """Of the first epoch, which shows how much queries make of a row; None: that does not matter."""


class Capacity:
    """Starts small, grows when there is more to read than the driver takes, shrinks when something was too much."""

    def __init__(
        self,
        settings: Settings,
        *,
        collects: bool,
        limit: int | None,
        sources: int,
        warm_up: Callable[[], None],
        count_cores: Callable[[], int],
    ) -> None:
        limits = settings.epoch
        large = min(limits.rows, limits.collect_rows) if collects else limits.rows
        if limit:  # rows beyond a record limit would be written as well: come near it, not far past it
            large = min(large, max(limit, settings.record_batch_size))
        # An epoch takes from all sources: each has its part.
        large, driver_rows = max(large // sources, 1), -(-limits.driver_rows // sources)
        budget = max(limits.bytes // sources, 1)
        self._small = Caps(
            driver_rows=driver_rows,
            rows=min(large, max(driver_rows, 1)),
            bytes=budget,
            large_bytes=budget if collects else budget * _STREAMED,
            parts=1,
            part_rows=_LEAST_PART_ROWS,
            part_bytes=_PART_BYTES if collects else None,
            first_rows=FIRST_ROWS if collects else None,
        )
        self._large = replace(self._small, rows=large)
        self.most_bytes = limits.bytes * _TOO_LARGE
        """More of one node in the driver than this, and an epoch is too large."""
        self._count_cores = count_cores
        self._cores = count_cores()
        self._warm_up = warm_up
        self._workers = threading.Event()
        self._closed = False
        self._undisturbed_until = 0.0
        self._unasked = threading.Lock()  # taken once, by whoever asks for workers first
        self._ceiling: float | None = None
        """The bytes an epoch may have of one source since something was too much."""
        self._too_large = math.inf
        """The bytes of the smallest epoch that the driver could not hold."""
        if limits.driver_rows == 0:  # everything on the executors, from the first row
            self._workers.set()

    def caps(self) -> Caps:
        caps = replace(self._large, parts=self._cores) if self._workers.is_set() else self._small
        if self._ceiling is None:
            return caps
        ceiling = int(self._ceiling)
        return replace(caps, bytes=min(caps.bytes, ceiling), large_bytes=min(caps.large_bytes, ceiling))

    @property
    def preparing(self) -> bool:
        """Whether workers start at the moment, and the cores are theirs: nothing should be read on the driver."""
        return time.monotonic() < self._undisturbed_until

    def shrink(self, epoch: Epoch, *, crashed: bool) -> None:
        """An epoch was too much, or was under way when a process ended: its rows come again in smaller ones, and the
        epochs after them grow slowly."""
        half = max(epoch.bytes / 2, _LEAST_BYTES if crashed else 1)
        self._ceiling = half if self._ceiling is None else min(self._ceiling, half)
        if not crashed:  # a crash may have had another reason than the size
            self._too_large = min(self._too_large, max(epoch.bytes, 1))

    def after_epoch(self, rows: int, size: int = 0) -> None:
        """An epoch of so many rows and bytes went through. One as large as the driver takes means there is work for the
        executors."""
        if self._workers.is_set():
            self._cores = self._count_cores()  # of a cluster: executors come and go
        if self._ceiling is not None and size >= self._ceiling / 2:  # a tiny one proves nothing
            self._too_large *= _FORGETTING
            grown = self._ceiling * (_QUICK_GROWTH if self._ceiling < _CAREFUL_BYTES else _CAREFUL_GROWTH)
            self._ceiling = max(self._ceiling, min(grown, self._too_large * _NEAR))
            if self._ceiling >= self._large.large_bytes:
                self._ceiling = None
        if rows >= self._small.rows:
            self._want_workers()

    def waiting(self, rows: int) -> None:
        """So many rows wait at a source: workers are started beside the first epochs, not after them."""
        if rows > self._small.rows:
            self._want_workers()

    def _want_workers(self) -> None:
        if self._large.rows > self._small.rows and not self._workers.is_set() and self._unasked.acquire(blocking=False):
            self._undisturbed_until = time.monotonic() + _UNDISTURBED_S
            threading.Thread(target=self._warm, name="warm workers", daemon=True).start()

    def close(self) -> None:
        """The run is over: what the warm-up says from now on is of no interest."""
        self._closed = True

    def _warm(self) -> None:
        try:
            self._warm_up()
        except Exception as error:  # small epochs go on either way
            if self._closed:
                return
            log.warning("Python workers could not be started, epochs stay small: %s", error)
        else:
            self._cores = self._count_cores()
            self._workers.set()
        finally:
            self._undisturbed_until = 0.0


def start_workers(session: SparkSession) -> None:
    """Start the worker daemon and fork a worker per core, so that the first large epoch finds them.

    The other slots are left to the small epochs that go on meanwhile.
    """

    def touch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    count = cores(session)
    session.range(0, count, 1, count).mapInArrow(touch, "id BIGINT").toArrow()
