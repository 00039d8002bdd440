"""The steps of one epoch: record, transform, flush, finalize, commit."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from streamling.connector import Epoch, Sink, Slice, Source, Transform
from streamling.engine.data.dataflow import Dataflow
from streamling.engine.data.intake import Intake
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.data.results import Results
from streamling.engine.data.sampling import Sampler
from streamling.engine.data.spark_errors import RowFailure
from streamling.engine.protocol.bad_rows import BadRows, Rejects
from streamling.engine.protocol.context import RunContext
from streamling.engine.protocol.delivery import Delivery, Flushed, Outlet
from streamling.engine.protocol.epoch_metrics import EpochMetrics
from streamling.engine.protocol.epoch_times import EpochTimes, EpochWatch
from streamling.engine.protocol.pending import Pending
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state.store import ask_state
from streamling.letters.letter import RejectStage
from streamling.log_context import log_fields
from streamling.telemetry.event_time import EventTimes
from streamling.telemetry.meters import RowCounts
from streamling.testing.crash import crash_point

log = logging.getLogger(__name__)

# Java frees a DataFrame when Python's collector frees its proxy, and nothing else makes the collector run often enough.
_COLLECT_EVERY = 50
_COLLECT_BYTES = 32 << 20

REFUSED = "refused"
"""The reason of rows that a target has refused and that were dropped without a report of their own."""

Bounds = tuple[tuple[str, str], ...]
"""The slices of an epoch: their keys, starts and ends."""


def bounds(epoch: Epoch) -> Bounds:
    return tuple((s.key, json.dumps([s.start, s.end], sort_keys=True)) for s in epoch.slices)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """The rows that were read for an epoch that every sink has, and the counts of sources and transforms."""

    rows: int = 0
    counts: Mapping[str, RowCounts] = field(default_factory=dict)
    event_times: Mapping[str, EventTimes] = field(default_factory=dict)


def sink_counts(flushed: Flushed, given: int | None) -> RowCounts:
    """The counts of a sink; `given` are the rows of its input. A sink that had the epoch already accepts no row."""
    missing = given - flushed.rows_in if given is not None and flushed.arrived else 0
    filtered = max(flushed.arrived - flushed.written, 0)
    return RowCounts(flushed.rows_in, flushed.written, filtered=filtered, unaccounted=missing)


class EpochSteps:
    """Runs the steps of an epoch, and counts finalized epochs and rows."""

    def __init__(
        self,
        context: RunContext,
        dataflow: Dataflow,
        delivery: Delivery,
        bad_rows: BadRows,
        listeners: Sequence[Source | Transform | Sink],
        progress: Progress,
        metrics: EpochMetrics | None = None,
        trace: Callable[[EpochTimes], object] = lambda times: None,
        sampler: Sampler | None = None,
    ) -> None:
        """`trace` gets every finalized epoch."""
        self._context = context
        self._sampler = sampler
        self._dataflow = dataflow
        self._delivery = delivery
        self._bad_rows = bad_rows
        self._listeners = listeners
        self._progress = progress
        self._metrics = metrics
        self._trace = trace
        self._sink_names = {outlet.node.id: outlet.name for outlet in context.outlets}
        self._uncollected_bytes = 0
        self.epochs = 0
        self.rows = 0

    @property
    def keeps_letters(self) -> bool:
        """Whether bad rows are stored, so that a replay has to find them again."""
        return self._bad_rows.keeps_letters

    @property
    def fills_tables(self) -> bool:
        """Whether a replay has to add values to dynamic tables, even if every sink has the epoch."""
        return self._dataflow.fills_after

    def run(self, epoch: Epoch, intakes: Mapping[str, Intake], max_bytes: int | None, *, waited_s: float = 0.0) -> None:
        """Steps 2 to 6. Raises EpochTooLarge if the epoch takes more than `max_bytes` in this process. `waited_s`: how
        long the run has waited for it."""
        watch = self._begin(intakes, waited_s)
        with log_fields(epoch=epoch.number):
            with self._context.activity.step(f"recording epoch {epoch.number} in the state backend"):
                record = ask_state(lambda: self._context.journal.record(epoch, self._context.fingerprint))  # 2
            crash_point("after-record")
            delivered = self._deliver(record.epoch, intakes, self._context.outlets, max_bytes, watch)
            self._finish(record, delivered, watch)

    def replay(self, record: Pending, intakes: Mapping[str, Intake], outlets: Sequence[Outlet]) -> None:
        """Steps 3 to 6 of a recorded epoch, for the sinks that lack it. Without intakes: steps 5 and 6."""
        watch = self._begin(intakes, 0.0, replayed=True)
        with log_fields(epoch=record.epoch.number):
            delivered = self._deliver(record.epoch, intakes, outlets, None, watch) if intakes else _Delivered()
            self._finish(record, delivered, watch)

    def _begin(self, intakes: Mapping[str, Intake], waited_s: float, *, replayed: bool = False) -> EpochWatch:
        if self._metrics is not None:
            self._metrics.begin()
        read_s = {node: intake.read_s for node, intake in intakes.items()}
        return EpochWatch(waited_s * 1000, read_s, replayed)

    def _deliver(
        self,
        epoch: Epoch,
        intakes: Mapping[str, Intake],
        outlets: Sequence[Outlet],
        max_bytes: int | None,
        watch: EpochWatch,
    ) -> _Delivered:
        """Raises EpochTooLarge if this process has to hold more than `max_bytes`."""
        self._bad_rows.begin()
        wanted, clock = [outlet.node for outlet in outlets], watch.clock
        began_s = clock.seconds
        results = self._dataflow.compute(epoch, intakes, wanted=wanted, max_bytes=max_bytes, clock=clock)  # 3
        watch.computed_s = clock.seconds - began_s
        try:
            self._flush(results, outlets)  # 4
            watch.flushed_s = clock.seconds
            rejects = self._dataflow.rejects(results, intakes)
            arrived = {outlet.node.id: outlet.flushed.rows_in for outlet in outlets if outlet.flushed is not None}
            counts, collected_bytes = self._dataflow.row_counts(results, rejects, arrived), results.collected_bytes
            event_times = self._dataflow.event_times(results, rejects)
            additions = self._dataflow.additions(results)
            self._uncollected_bytes += collected_bytes
            if self._sampler is not None:
                self._sampler.take(results)
        finally:
            results.release()
        self._handle_rejects(epoch, rejects, intakes, outlets)
        # Last: once they are in the tables, a replay would find the rows of the epoch there.
        self._dataflow.add_values(additions)
        rows = sum(rejects[node].report.rows for node in intakes)
        for source in self._context.sources:
            if source.node in intakes:
                source.note_delivery(rejects[source.node].report, collected_bytes / max(rows, 1))
        self._dataflow.count(rejects)
        for node, one in rejects.items():
            clock.add_computed(node, one.report.compute_ms / 1000)
        return _Delivered(rows, counts, event_times)

    def _flush(self, results: Results, outlets: Sequence[Outlet]) -> None:
        """Rows that a query cannot compute may become known here: then the sinks that lack the epoch get it without
        them, if `on_error` of the query allows it."""
        epoch, wanted = results.epoch, [outlet.node for outlet in outlets]
        while True:
            try:
                self._delivery.flush(results, [outlet for outlet in outlets if outlet.delivered != epoch.id])
                self._dataflow.compute_unread(results, wanted)
                return
            except RowFailure:
                if not self._dataflow.leave_out_bad_rows(results):
                    raise

    def _handle_rejects(
        self,
        epoch: Epoch,
        rejects: Mapping[str, Rejects],
        intakes: Mapping[str, Intake],
        outlets: Sequence[Outlet],
    ) -> None:
        """Store or count all bad rows before the epoch is finalized."""
        for node, node_rejects in rejects.items():
            stage = RejectStage.DECODE if node in intakes else RejectStage.TRANSFORM
            reject = partial(self._bad_rows.reject, epoch, node, stage, node_rejects)
            self._context.retry(reject, f"bad rows of '{node}'")
        for outlet in outlets:
            self._bad_rows.count(outlet.node.id, RejectStage.WRITE, len(outlet.bad_rows), outlet.bad_rows)
            outlet.bad_rows = ()

    def _finish(self, record: Pending, delivered: _Delivered, watch: EpochWatch) -> None:
        epoch = record.epoch
        crash_point("before-finalize")
        with self._context.activity.step(f"finalizing epoch {epoch.number} in the state backend"):
            ask_state(lambda: self._context.journal.finalize(record))  # 5
        self._bad_rows.finalized()
        self._count_rows(epoch, delivered)
        crash_point("after-finalize")
        crash_point("before-group-commit")
        if self._context.acknowledges:
            self._acknowledge(epoch)  # 6
        if epoch.loose_rows and self._context.same_rows:
            # After the sources have stored their positions: rows that they give again follow the same epoch.
            ask_state(lambda: self._context.journal.set_last_loose(epoch.number))
        self._count_epoch(epoch, watch.times(epoch.number, delivered.rows, self._sink_names))

    def _acknowledge(self, epoch: Epoch) -> None:
        for source in self._context.sources:
            slices = [s for s in epoch.slices if s.node == source.node]
            if slices:
                with self._context.activity.step(f"committing epoch {epoch.number}", source.node):
                    self._notify_source(source, slices)
        for listener in self._listeners:
            listener.finalized(epoch.number)

    def _notify_source(self, source: ReadAhead, slices: Sequence[Slice]) -> None:
        try:
            source.source.committed(slices)
        except Exception as error:  # the epoch is delivered and recorded, whatever the source does
            log.warning("source %s could not commit the delivered positions on its side: %s", source.node, error)

    def _count_rows(self, epoch: Epoch, delivered: _Delivered) -> None:
        """Count the rows of a finalized epoch, at all nodes."""
        counts, event_times = dict(delivered.counts), dict(delivered.event_times)
        for source in self._context.sources:
            slices = [s for s in epoch.slices if s.node == source.node]
            self._progress.meter(source.node).set_phase(source.source.phase(slices) if slices else None)
        for outlet in self._context.outlets:
            flushed, input_ = outlet.finalized(), delivered.counts.get(outlet.node.inputs[0])
            if flushed is None:
                continue
            counts[outlet.node.id] = sink_counts(flushed, input_.rows_out if input_ is not None else None)
            if flushed.event_times is not None:
                event_times[outlet.node.id] = flushed.event_times
            if flushed.skipped:
                meter = self._progress.meter(outlet.node.id)
                meter.reject("rows_skipped", flushed.skipped, stage=RejectStage.WRITE.value, reason=REFUSED)
        for node, times in event_times.items():
            self._progress.meter(node).note_event_times(times)
        for node, rows in counts.items():
            self._progress.meter(node).count(rows)
            if rows.unaccounted:
                log.error(
                    "a bug in streamling: rows of '%s' in epoch %d are not accounted for: %s", node, epoch.number, rows
                )

    def _count_epoch(self, epoch: Epoch, times: EpochTimes) -> None:
        rows = times.rows
        self.epochs += 1
        self.rows += rows
        self._context.capacity.after_epoch(epoch.rows, epoch.bytes)
        self._progress.count_epoch(times)
        if self._metrics is not None:
            self._metrics.finalized(times)
        self._trace(times)
        log.info("Epoch finalized: number=%d rows=%d ms=%.0f", epoch.number, rows, times.total_ms)
        self._uncollected_bytes += epoch.bytes
        if self.epochs % _COLLECT_EVERY == 0 or self._uncollected_bytes >= _COLLECT_BYTES:
            self._uncollected_bytes = 0
            gc.collect()
