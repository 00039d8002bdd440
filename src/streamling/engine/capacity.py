"""How large the next epoch may be, and whether Python workers are there to read it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.engine.cores import cores, local_cores
from streamling.plugin.contract import Epoch
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Below this a part of its own costs more than it gains.
_LEAST_PART_ROWS = 10_000
# Workers take four seconds to start on two quiet cores. Small epochs beside them make that up to half as long again;
# what they bring is read by workers in a fraction of a second. Where it takes longer than this, they go on after all.
_UNDISTURBED_S = 10.0


@dataclass(frozen=True, slots=True)
class Caps:
    """`driver_rows` divides small epochs, computed on the driver, from large ones."""

    driver_rows: int
    rows: int
    bytes: int
    parts: int
    part_rows: int


class Capacity:
    """Starts small, grows when there is more to read than the driver takes, shrinks after a crash."""

    def __init__(
        self,
        settings: Settings,
        *,
        collects: bool,
        limit: int | None,
        sources: int,
        warm_up: Callable[[], None],
        cores: Callable[[], int] = local_cores,
    ) -> None:
        limits = settings.epoch
        large = min(limits.rows, limits.collect_rows) if collects else limits.rows
        if limit:  # rows beyond a record limit would be written as well: come near it, not far past it
            large = min(large, max(limit, settings.record_batch_size))
        # An epoch takes from all sources: each has its part.
        large, driver_rows = max(large // sources, 1), -(-limits.driver_rows // sources)
        self._small = Caps(
            driver_rows=driver_rows,
            rows=min(large, max(driver_rows, 1)),
            bytes=limits.bytes // sources,
            parts=cores(),
            part_rows=_LEAST_PART_ROWS,
        )
        self._large = replace(self._small, rows=large)
        self._warm_up = warm_up
        self._cores = cores
        self._parts = self._small.parts
        self._workers = threading.Event()
        self._closed = False
        self._undisturbed_until = 0.0
        self._unasked = threading.Lock()  # taken once, by whoever asks for workers first
        self._crashed_rows: int | None = None
        if limits.driver_rows == 0:  # everything on the executors, from the first row
            self._workers.set()

    def caps(self) -> Caps:
        caps = replace(self._large if self._workers.is_set() else self._small, parts=self._parts)
        if self._crashed_rows is None:
            return caps
        # What was too much is not tried for ever: each crash halves the next attempt.
        return replace(caps, rows=max(1, min(caps.rows, self._crashed_rows // 2)))

    @property
    def preparing(self) -> bool:
        """Whether workers start at the moment, and the cores are theirs: nothing should be read on the driver."""
        return time.monotonic() < self._undisturbed_until

    def after_crash(self, epoch: Epoch) -> None:
        """An epoch was under way when a process ended, and is cut anew."""
        nodes = {s.node for s in epoch.slices}
        self._crashed_rows = max(sum(s.rows for s in epoch.slices if s.node == node) for node in nodes)

    def after_epoch(self, rows: int) -> None:
        """An epoch went through. One as large as the driver takes means there is work for the executors."""
        self._crashed_rows = None
        self._parts = self._cores()  # of a cluster: executors come and go
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
            self._parts = self._cores()
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
