"""Flushing an epoch: all sinks write and commit in parallel; the epoch waits for all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Epoch, Report, Sink, WaitsForOthers
from streamling.connector.reports import sum_event_times, sum_latencies
from streamling.engine.data.dataflow import Dataflow
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.results import EpochTooLarge, Results
from streamling.engine.data.spark_errors import RowFailure, spark_errors
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.activity import Activity
from streamling.engine.protocol.bad_rows import BadRows, RejectStreak
from streamling.engine.protocol.bounds import Bounds, bounds
from streamling.engine.protocol.lanes import make_lanes
from streamling.engine.protocol.losses import Losses
from streamling.errors import INTERNAL, BugError, Fenced, StreamlingError, TransientError
from streamling.letters.letter import RejectStage
from streamling.log_context import log_fields
from streamling.plan.planned_node import PlannedNode
from streamling.retry import retry
from streamling.spec.settings import Settings
from streamling.telemetry.buckets import BucketCounts
from streamling.telemetry.event_time import EventTimes
from streamling.testing.crash import crash_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Often enough to be noticed, rarely enough not to flood the log.
_REMIND_S = 10.0


@dataclass(frozen=True, slots=True)
class Flushed:
    """The rows of one epoch at one sink."""

    offered: int
    """Rows that were read for the epoch."""
    arrived: int
    """Rows that the writers have accepted."""
    written: int
    """Rows that the target has because of them."""
    skipped: int = 0
    """Rows that the target has refused and that were dropped."""
    bad_rows: tuple[BadRow, ...] = ()
    """Rows that the sink rejects."""
    event_times: EventTimes | None = None
    latencies: Mapping[str, BucketCounts] = field(default_factory=dict)
    """By metric: what its writers have measured."""

    @property
    def rows_in(self) -> int:
        return self.arrived + self.skipped + len(self.bad_rows)


@dataclass(slots=True, eq=False)
class Outlet:
    """A sink in a run: the node, the connector, and what it has written so far."""

    node: PlannedNode
    sink: Sink
    limit: int | None
    flushed: Flushed | None = None
    """What it has committed of an epoch that is not finalized."""
    flushed_bounds: Bounds = ()
    """Of that epoch, which may be replayed under another id, or in parts by several processes."""
    written: int = 0
    arrived: int = 0
    offered: int = 0
    bad_rows: tuple[BadRow, ...] = ()
    """Rows of the current epoch that the sink rejects."""
    skipped: int = 0
    """Rows that the target has refused and that were dropped."""
    delivered: str = ""
    """The id of the last epoch that it has."""
    retry_trouble: str | None = None
    """Why the sink does not accept the current epoch, while its write is retried."""

    @property
    def name(self) -> str:
        return self.node.spec.name

    @property
    def share(self) -> float:
        """How many rows arrive at the sink per row read; 1 until the first epoch."""
        return self.arrived / self.offered if self.offered else 1.0

    @property
    def limit_reached(self) -> bool:
        return bool(self.limit) and self.written + self.skipped >= (self.limit or 0)

    @property
    def trouble(self) -> str | None:
        """What keeps the sink from making progress now."""
        return self.retry_trouble or self.sink.trouble()

    def finalized(self) -> Flushed | None:
        """The epoch is finalized: count what the sink has committed of it, once."""
        flushed, self.flushed = self.flushed, None
        if flushed is not None:
            self.written += flushed.written
            self.arrived += flushed.arrived
            self.skipped += flushed.skipped
            self.offered += flushed.offered
        return flushed

    def note_commit(self, epoch: Epoch, flushed: Flushed) -> None:
        self.flushed = flushed
        self.flushed_bounds = bounds(epoch)
        self.delivered = epoch.id

    def note_trouble(self, trouble: str | None) -> None:
        self.retry_trouble = trouble


class Delivery:
    def __init__(
        self,
        session: SparkSession,
        dataflow: Dataflow,
        outlets: Sequence[Outlet],
        stop: StopRequest,
        bad_rows: BadRows,
        max_same_rejects: int,
        activity: Activity | None = None,
    ) -> None:
        self._session = session
        self._activity = activity or Activity()
        self._dataflow = dataflow
        self._stop = stop
        self._bad_rows = bad_rows
        self._streaks = {o.node.id: RejectStreak(o.name, max_same_rejects) for o in outlets}
        self._lanes = make_lanes(outlets)
        self._pool = ThreadPoolExecutor(max(len(self._lanes), 1), thread_name_prefix="flush")

    def flush(self, results: Results, outlets: Sequence[Outlet]) -> None:
        """Write and commit in all these sinks. On return all of them have the epoch; otherwise the gravest error is
        raised.

        A sink that fails does not keep the others from finishing.
        """
        epoch = results.epoch
        self._stop.failed.clear()
        waiting: dict[Future[None], list[Outlet]] = {}
        for lane in self._lanes:
            chosen = [outlet for outlet in lane if outlet in outlets]
            if chosen:
                waiting[self._pool.submit(self._deliver, chosen, results)] = chosen
        failures: list[BaseException] = []
        while waiting:
            done, _ = wait(waiting, timeout=_REMIND_S, return_when=FIRST_COMPLETED)
            for future in done:
                names = ", ".join(o.name for o in waiting.pop(future))
                if error := future.exception():
                    failures.append(error)
                    # Stop the retries of the other sinks and log every failure: the first error must not wait for a
                    # sink that retries forever.
                    self._stop.failed.set()
                    # The loop cuts the epoch, or finds the row and reports it.
                    if not isinstance(error, EpochTooLarge | RowFailure):
                        log.error("sink %s failed; the other sinks finish the epoch if they can: %s", names, error)
            if not done:
                names = ", ".join(o.name for lane in waiting.values() for o in lane)
                log.warning("epoch %d is waiting for sinks: %s", epoch.number, names)
        if failures:
            raise gravest(failures)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, lane: Sequence[Outlet], results: Results) -> None:
        """Deliver to the sinks of a lane, one after the other. One that waits for others gets the epoch again after
        them, in reverse order: rows that refer to others are deleted first."""
        failures: list[BaseException] = []
        waiting, final = list(lane), len(lane) == 1
        while waiting:
            postponed: list[Outlet] = []
            for outlet in waiting:
                try:
                    fields = log_fields(node=outlet.name, epoch=results.epoch.number)
                    with fields, results.clock.flushing(outlet.node.id):
                        self._deliver_one(outlet, results, final=final and not failures)
                except WaitsForOthers as error:
                    log.debug("sink %s waits for other sinks: %s", outlet.name, error)
                    postponed.append(outlet)
                except BaseException as error:  # raised below, after the other sinks of the lane
                    failures.append(error)
                    with suppress(StreamlingError):
                        outlet.sink.abort(results.epoch)
                final = False
            if failures:
                # What a sink waits for may be in the one that failed: nothing may be rejected because of that.
                break
            # Without progress only the decision of one sink about its rows helps the others.
            final = len(postponed) == 1 or len(postponed) == len(waiting)
            waiting = postponed[::-1]
        if failures:
            raise gravest(failures)

    def _deliver_one(self, outlet: Outlet, results: Results, *, final: bool) -> None:
        outlet.bad_rows = ()
        exclusions = Exclusions(outlet.name)
        losses = Losses(outlet.name)
        try:
            retry(
                lambda: losses.guard(
                    lambda: self._attempt(outlet, results, exclusions, final=final),
                    divisible=results.max_bytes is not None,
                ),
                what=f"sink '{outlet.name}'",
                stopping=lambda: self._stop.ends_retries,
                sleep=self._stop.pause_retries,
                clean_up=lambda: outlet.sink.abort(results.epoch),
                on_trouble=outlet.note_trouble,
            )
        except WaitsForOthers:
            outlet.sink.abort(results.epoch)
            raise

    def _attempt(self, outlet: Outlet, results: Results, exclusions: Exclusions, *, final: bool) -> None:
        epoch, node = results.epoch, outlet.node
        with spark_errors(outlet.name):
            context = self._session.sparkContext
            context.setLocalProperty("spark.scheduler.pool", node.id)
            context.setJobGroup(f"epoch {epoch.number}", f"epoch {epoch.number} {outlet.name}", True)
        with self._activity.step(f"writing epoch {epoch.number}", node.id):
            reports = self._write(outlet, results, exclusions, final=final)
        crash_point("before-commit", node.ref)
        with self._activity.step(f"committing epoch {epoch.number}", node.id):
            written, arrived = outlet.sink.commit(epoch, reports), sum(report.rows for report in reports)
        self._streaks[node.id].add(arrived, outlet.bad_rows)
        skipped = sum(report.skipped for report in reports)
        event_times = sum_event_times(report.event_times for report in reports)
        latencies = sum_latencies(report.latencies for report in reports)
        flushed = Flushed(epoch.rows, arrived, written, skipped, outlet.bad_rows, event_times, latencies)
        outlet.note_commit(epoch, flushed)
        results.clock.note_commit(node.id)
        crash_point("after-commit", node.ref)

    def _write(self, outlet: Outlet, results: Results, exclusions: Exclusions, *, final: bool) -> list[Report]:
        """Let the sink write everything it does not reject; rejected rows are stored before anything is committed.

        After a commit the epoch would not be written again, so they could not be found again. A sink with a
        transaction rolls it back while letters are stored, and writes again without the rejected rows. They stay
        excluded when the epoch is retried: a commit may have succeeded although its answer was lost.
        """
        epoch, node = results.epoch, outlet.node
        while True:
            reports = self._dataflow.write(node, results, exclusions, final=final)
            crash_point("after-write", node.ref)
            rejected = tuple(bad for report in reports for bad in report.bad_rows)
            if not all(report.complete for report in reports):
                raise BugError(INTERNAL, "a writer's report lacks some of the rows it rejects", node=outlet.name)
            self._bad_rows.check(node.id, rejected)
            accepted = sum(report.rows for report in reports)
            self._streaks[node.id].check(accepted, (*outlet.bad_rows, *rejected))
            rejected = self._dataflow.with_origins(node, results, rejected, exclusions)
            if not outlet.sink.capabilities.transactional:
                outlet.bad_rows = rejected
                self._bad_rows.store_letters(epoch, node.id, RejectStage.WRITE, iter(rejected))
                return reports
            if not rejected:
                if not exclusions:
                    self._bad_rows.store_letters(epoch, node.id, RejectStage.WRITE, iter(()))
                return reports
            outlet.sink.abort(epoch)
            self._bad_rows.store_letters(epoch, node.id, RejectStage.WRITE, iter((*outlet.bad_rows, *rejected)))
            outlet.bad_rows += rejected
            exclusions.add(rejected)


def gravest(failures: Sequence[BaseException]) -> BaseException:
    """The error with which an epoch fails. Permanent errors and Fenced come first, then EpochTooLarge: the rows are
    read again in smaller epochs, which also retries what failed transiently."""
    too_large = [error for error in failures if isinstance(error, EpochTooLarge)]
    permanent = [error for error in failures if isinstance(error, Fenced) or not isinstance(error, TransientError)]
    return ([error for error in permanent if error not in too_large] or too_large or list(failures))[0]


def record_limit(sink: Sink, settings: Settings) -> int | None:
    """The record limit: the sink's own, else the application's."""
    capabilities = sink.capabilities
    if capabilities.observer:
        return None
    return capabilities.record_limit if capabilities.record_limit is not None else settings.num_records_before_stop
