"""Flushing an epoch: every sink writes and commits, side by side; the epoch waits for all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.engine.bad_rows import BadRows, Stage
from streamling.engine.dataflow import Frames
from streamling.engine.progress import Progress
from streamling.engine.spark_errors import spark_errors
from streamling.engine.stop import StopRequest
from streamling.errors import StreamlingError
from streamling.plan.nodes import PlannedNode
from streamling.plugin.abilities import Batch
from streamling.plugin.contract import Ack, BadRow, Epoch, Placement, Sink, Task
from streamling.retry import retry
from streamling.testing.crash import crash_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Often enough to be seen by a person who looks, seldom enough not to flood.
_REMIND_S = 10.0
# From here on an open epoch counts as failed; its writes go on being retried all the same.
_OVERDUE_S = 300.0
_LOOK_UP_S = 0.5


@dataclass(slots=True, eq=False)
class Outlet:
    """A sink in its run: the node, the connector, and what it has written so far."""

    node: PlannedNode
    sink: Sink
    wish: Batch | None
    limit: int | None
    written: int = 0
    arrived: int = 0
    offered: int = 0
    refused: tuple[BadRow, ...] = ()
    """Rows of the epoch under way that the sink cannot write."""
    trouble: str | None = None
    """Why the sink does not take the epoch under way, while that is tried again."""

    @property
    def name(self) -> str:
        return self.node.spec.name

    @property
    def share(self) -> float:
        """Of a row read, how many lately arrived here; 1 until something is known."""
        return self.arrived / self.offered if self.offered else 1.0

    @property
    def limit_reached(self) -> bool:
        return bool(self.limit) and self.written >= (self.limit or 0)

    def note_trouble(self, trouble: str | None) -> None:
        self.trouble = trouble


class Delivery:
    def __init__(
        self,
        session: SparkSession,
        outlets: Sequence[Outlet],
        stop: StopRequest,
        progress: Progress,
        bad_rows: BadRows,
    ) -> None:
        self._session, self._stop, self._progress, self._bad_rows = session, stop, progress, bad_rows
        self._failed = threading.Event()
        self._lanes = _lanes(outlets)
        self._pool = ThreadPoolExecutor(max(len(self._lanes), 1), thread_name_prefix="flush")

    def flush(self, epoch: Epoch, frames: Frames, outlets: Sequence[Outlet]) -> None:
        """Write and commit in all these sinks. On return every one of them has the epoch; else the first error.

        A sink that fails does not keep the others from finishing theirs.
        """
        began = time.monotonic()
        self._failed.clear()
        waiting: dict[Future[None], list[Outlet]] = {}
        for lane in self._lanes:
            chosen = [outlet for outlet in lane if outlet in outlets]
            if chosen:
                waiting[self._pool.submit(self._deliver, chosen, epoch, frames)] = chosen
        failures: list[BaseException] = []
        overdue = False
        while waiting:
            done, _ = wait(waiting, timeout=_REMIND_S, return_when=FIRST_COMPLETED)
            for future in done:
                names = ", ".join(o.name for o in waiting.pop(future))
                if error := future.exception():
                    failures.append(error)
                    # A sink that retries without end must not hide one that is dead, nor one that is dead another.
                    self._failed.set()
                    log.error("sink %s has failed, others finish what they can: %s", names, error)
            if not done:
                names = ", ".join(o.name for lane in waiting.values() for o in lane)
                log.warning("epoch %d waits for missing sinks: %s", epoch.number, names)
            if not overdue and time.monotonic() - began > _OVERDUE_S:
                overdue = True
                log.warning("epoch %d is open for more than %.0f s", epoch.number, _OVERDUE_S)
        if failures:
            raise failures[0]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, lane: Sequence[Outlet], epoch: Epoch, frames: Frames) -> None:
        failures: list[BaseException] = []
        for outlet in lane:
            try:
                self._deliver_one(outlet, epoch, frames)
            except BaseException as error:  # raised below, once the others have had their turn
                failures.append(error)
                with suppress(StreamlingError):
                    outlet.sink.abort(epoch)
        if failures:
            raise failures[0]

    def _deliver_one(self, outlet: Outlet, epoch: Epoch, frames: Frames) -> None:
        retry(
            lambda: self._try(outlet, epoch, frames),
            what=f"sink '{outlet.name}'",
            stopping=lambda: self._stop.requested or self._failed.is_set(),
            sleep=self._pause,
            clean_up=lambda: outlet.sink.abort(epoch),
            tell=outlet.note_trouble,
        )

    def _pause(self, seconds: float) -> None:
        """Sleep, but not much beyond a stop or the failure of another sink."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._failed.is_set() and not self._stop.requested:
            self._stop.pause(min(left, _LOOK_UP_S))

    def _try(self, outlet: Outlet, epoch: Epoch, frames: Frames) -> None:
        with spark_errors(outlet.name):
            context = self._session.sparkContext
            context.setLocalProperty("spark.scheduler.pool", outlet.node.ref)
            context.setJobGroup(f"epoch {epoch.number}", f"epoch {epoch.number} {outlet.name}", True)
        acks = self._write(outlet, epoch, frames)
        crash_point("after-write", outlet.node.ref)
        outlet.refused = tuple(bad for ack in acks for bad in ack.refused)
        self._bad_rows.check(outlet.node.id, outlet.refused)
        # Before the sink is done with the epoch: afterwards nobody would ask it again for what it refused.
        self._bad_rows.keep(epoch, outlet.node.id, Stage.WRITE, iter(outlet.refused))
        crash_point("before-commit", outlet.node.ref)
        written, arrived = outlet.sink.commit(epoch, acks), sum(ack.rows for ack in acks)
        outlet.written += written
        outlet.arrived += arrived
        self._progress.passed(outlet.node.id, rows_in=arrived + len(outlet.refused), rows_out=written)
        outlet.offered += epoch.rows
        crash_point("after-commit", outlet.node.ref)

    def _write(self, outlet: Outlet, epoch: Epoch, frames: Frames) -> list[Ack]:
        (input_,) = outlet.node.inputs
        placement = outlet.sink.capabilities.placement
        if frames.large and placement is Placement.NOWHERE:
            return [Ack(frames.count(input_))]
        if frames.large and placement is Placement.ANY:
            return frames.write(input_, outlet.sink.writer(), epoch)
        return [outlet.sink.writer().write(epoch, Task(0, 0), frames.batches(input_))]


def _lanes(outlets: Sequence[Outlet]) -> list[list[Outlet]]:
    """Sinks that flush side by side; those with one target flush one after the other, in file order."""
    lanes: dict[str, list[Outlet]] = {}
    for outlet in outlets:
        target = outlet.sink.target
        lanes.setdefault(f"target {target}" if target else f"node {outlet.node.ref}", []).append(outlet)
    for lane in lanes.values():
        if len(lane) > 1:
            log.warning("sinks with one target flush one after the other: %s", ", ".join(o.name for o in lane))
    return list(lanes.values())
