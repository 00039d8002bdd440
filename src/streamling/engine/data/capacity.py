"""How large the next epoch may be, and whether Python workers run to read it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from streamling.connector import Epoch
from streamling.spec.settings import Settings

log = logging.getLogger(__name__)

# A smaller part costs more than reading it in parallel gains.
_LEAST_PART_ROWS = 10_000
# Starting Python workers takes about 4 s on two idle cores, up to 6 s if small epochs compete for them. So reading
# pauses while they start, for at most this long.
_LONGEST_PAUSE_S = 10.0
# If no rows are collected in the driver, they pass through Java and the workers in small batches. Then an epoch may be
# this many times larger: only its duration, and what is replayed after a crash, limit its size.
_STREAMED_FACTOR = 16
# Java holds the results of several collected parts at a time, each as a whole.
_PART_BYTES = 16 << 20
# How many rows of unknown length are read first.
FIRST_ROWS = 1000
# An epoch whose rows in the driver exceed the budget this many times is cut into smaller ones.
_TOO_LARGE_FACTOR = 4
# An epoch of fewer bytes than this is not too large for any machine: something else ended the process.
_LEAST_BYTES = 64 << 10
# How the limit grows from epoch to epoch after it was reduced: quickly while it is small, slowly above this size.
_CAREFUL_BYTES = 1 << 20
_QUICK_GROWTH, _CAREFUL_GROWTH = 1.25, 1.05
# How close the limit may come to a size that was too large, and how slowly that size is forgotten: in a few hundred
# epochs.
_NEAR, _FORGETTING = 0.8, 1.005


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of one source in the next epoch. Up to `driver_rows` an epoch is computed in the driver."""

    driver_rows: int
    rows: int
    bytes: int
    """Limit for the rows that the driver buffers."""
    large_bytes: int
    """Limit for the rows that the executors read."""
    parts: int
    part_rows: int
    part_bytes: int | None
    """None: a part may have any size."""
    first_rows: int | None = None
    """Limit for the first epoch, which shows how much data queries make of a row; None: no such limit."""


class Capacity:
    """Starts small, grows when there is more to read than the driver computes, shrinks when an epoch was too large."""

    def __init__(
        self,
        settings: Settings,
        *,
        collects: bool,
        direct: bool = False,
        limit: int | None,
        sources: int,
        start_workers: Callable[[Callable[[Exception | None], None]], None],
        count_cores: Callable[[], int],
    ) -> None:
        """`collects`: some rows come into the driver. `direct`: all rows do, and nothing is computed in between, so the
        driver reads them itself. `start_workers` starts Python workers in the background and then
        calls its argument, with the error if there was one."""
        limits = settings.epoch
        large = min(limits.rows, limits.collect_rows) if collects else limits.rows
        if limit:  # an epoch is written as a whole: it should not exceed a record limit by much
            large = min(large, max(limit, settings.record_batch_size))
        # All sources together fill an epoch: each gets an equal share.
        large, driver_rows = max(large // sources, 1), -(-limits.driver_rows // sources)
        if direct and "driver_rows" not in limits.model_fields_set:
            driver_rows = large
        budget = max(limits.bytes // sources, 1)
        self._small = Caps(
            driver_rows=driver_rows,
            rows=min(large, max(driver_rows, 1)),
            bytes=budget,
            large_bytes=budget if collects else budget * _STREAMED_FACTOR,
            parts=1,
            part_rows=_LEAST_PART_ROWS,
            part_bytes=_PART_BYTES if collects else None,
            first_rows=FIRST_ROWS if collects or driver_rows else None,  # the driver holds what small epochs make
        )
        self._large = replace(self._small, rows=large)
        self._sources = sources
        self.max_bytes = limits.bytes * _TOO_LARGE_FACTOR
        """An epoch is too large if the driver has to hold more bytes of one node than this."""
        self._count_cores = count_cores
        self._cores = count_cores()
        self._start_workers = start_workers
        self._workers_run = threading.Event()
        self._closed = False
        self._pause_until = 0.0
        self._start_once = threading.Lock()  # taken by the first thread that wants workers, and never released
        self._ceiling: float | None = None
        """The bytes of one source that an epoch may have, since an epoch was too large."""
        self._too_large = math.inf
        """The bytes of the smallest epoch that the driver could not hold."""
        if limits.driver_rows == 0:  # everything on the executors, from the first row
            self._workers_run.set()

    def caps(self) -> Caps:
        caps = replace(self._large, parts=self._cores) if self._workers_run.is_set() else self._small
        if self._ceiling is None:
            return caps
        ceiling = int(self._ceiling)
        return replace(caps, bytes=min(caps.bytes, ceiling), large_bytes=min(caps.large_bytes, ceiling))

    def limit_rows(self, rows: int, *, first: int) -> None:
        """Keep all epochs in the driver, with at most this many rows; the first one with at most `first` per source."""
        share = max(rows // self._sources, 1)
        self._small = replace(self._small, rows=share, driver_rows=share, first_rows=first)
        self._large = self._small

    @property
    def starting_workers(self) -> bool:
        """Whether workers are starting now and need the cores: the driver should not read meanwhile."""
        return time.monotonic() < self._pause_until

    def shrink(self, epoch: Epoch, *, crashed: bool) -> None:
        """An epoch was too large, or was running when a process ended: its rows are read again in smaller epochs, which
        then grow slowly."""
        half = max(epoch.bytes / 2, _LEAST_BYTES if crashed else 1)
        self._ceiling = half if self._ceiling is None else min(self._ceiling, half)
        if not crashed:  # a crash may have had another reason than the size
            self._too_large = min(self._too_large, max(epoch.bytes, 1))

    def after_epoch(self, rows: int, size: int = 0) -> None:
        """An epoch of this many rows and bytes was delivered. One as large as the driver computes means that there is
        work for the executors."""
        if self._workers_run.is_set():
            self._cores = self._count_cores()  # in a cluster executors come and go
        if self._ceiling is not None and size >= self._ceiling / 2:  # a tiny epoch proves nothing
            self._too_large *= _FORGETTING
            growth = _QUICK_GROWTH if self._ceiling < _CAREFUL_BYTES else _CAREFUL_GROWTH
            self._ceiling = max(self._ceiling, min(self._ceiling * growth, self._too_large * _NEAR))
            if self._ceiling >= self._large.large_bytes:
                self._ceiling = None
        if rows >= self._small.rows:
            self._ensure_workers()

    def note_waiting(self, rows: int) -> None:
        """This many rows wait at a source: workers start while the first epochs run, not after them."""
        if rows > self._small.rows:
            self._ensure_workers()

    def _ensure_workers(self) -> None:
        if self._large.rows <= self._small.rows or self._workers_run.is_set():
            return
        if self._start_once.acquire(blocking=False):
            self._pause_until = time.monotonic() + _LONGEST_PAUSE_S
            self._start_workers(self._note_workers)

    def close(self) -> None:
        """The run is over: workers that fail to start from now on are not reported."""
        self._closed = True

    def _note_workers(self, error: Exception | None) -> None:
        try:
            if error is None:
                self._cores = self._count_cores()
                self._workers_run.set()
            elif not self._closed:  # small epochs continue without workers
                log.warning("Python workers could not be started, epochs stay small: %s", error)
        finally:
            self._pause_until = 0.0
