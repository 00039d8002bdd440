"""The steps of one epoch: record, transform, flush, finalize, commit."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from streamling.connector import Epoch, Report, Sink, Slice, Source, Transform
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


@dataclass(frozen=True, slots=True)
class _Delivered:
    """The rows that were read for an epoch that every sink has, and the counts and reports of sources and transforms.
    `recounted`: by sink, what an earlier process has delivered and not counted."""

    rows: int = 0
    counts: Mapping[str, RowCounts] = field(default_factory=dict)
    event_times: Mapping[str, EventTimes] = field(default_factory=dict)
    reports: Mapping[str, Report] = field(default_factory=dict)
    phases: Mapping[str, Mapping[str, Report]] = field(default_factory=dict)
    """By source: the reports of its phases, if it has any."""
    recounted: Mapping[str, Flushed] = field(default_factory=dict)


def sink_counts(flushed: Flushed, given: int | None, *, replayed: bool = False) -> RowCounts:
    """The counts of a sink; `given` are the rows of its input. One that had a replayed epoch already may accept no
    row."""
    missing = given - flushed.rows_in if given is not None and (flushed.arrived or not replayed) else 0
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
        listeners: Mapping[str, Source | Transform | Sink],
        progress: Progress,
        metrics: EpochMetrics | None = None,
        trace: Callable[[EpochTimes], object] = lambda times: None,
        sampler: Sampler | None = None,
    ) -> None:
        """`listeners`: by id, the nodes that are told of finalized epochs. `trace` gets every finalized epoch."""
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

    def can_recount(self, outlet: Outlet, wanted: Sequence[Outlet]) -> bool:
        """Whether the rows of a sink that has a recorded epoch can be computed again, besides those of the others."""
        return self._dataflow.can_recount(outlet.node, [other.node for other in wanted])

    def run(self, epoch: Epoch, intakes: Mapping[str, Intake], max_bytes: int | None, *, waited_s: float = 0.0) -> None:
        """Steps 2 to 6. Raises EpochTooLarge if the epoch takes more than `max_bytes` in this process. `waited_s`: how
        long the run has waited for it."""
        watch = self._begin(epoch, intakes, waited_s)
        with log_fields(epoch=epoch.number):
            with self._context.activity.step(f"recording epoch {epoch.number} in the state backend") as note_trouble:
                journal, fingerprint = self._context.journal, self._context.fingerprint
                record = ask_state(lambda: journal.record(epoch, fingerprint), note_trouble)  # 2
            crash_point("after-record")
            delivered = self._deliver(record.epoch, intakes, self._context.outlets, max_bytes, watch)
            self._finish(record, delivered, watch)

    def give_up(self) -> None:
        """The epoch whose steps were begun is not finalized by this process."""
        self._context.activity.forget_failures()
        if self._metrics is not None:
            self._metrics.given_up()

    def replay(
        self,
        record: Pending,
        read: Callable[[], Mapping[str, Intake]],
        outlets: Sequence[Outlet],
        recount: Sequence[Outlet],
    ) -> None:
        """Steps 3 to 6 of a recorded epoch, for the sinks that lack it; `read` reads its rows again. `recount`: sinks
        that have it already, and whose rows are computed again to be counted. If all sinks have it, and nothing else
        lacks its rows, they are only counted: whatever fails then, the epoch is finalized."""
        # Its bad rows, or the values that it adds to dynamic tables, may not have been stored yet.
        lacking = bool(outlets) or self._bad_rows.keeps_letters or self._dataflow.fills_after
        with log_fields(epoch=record.epoch.number):
            if not lacking:
                watch, delivered = self._count_again(record.epoch, read, recount)
            else:
                intakes = read()
                watch = self._begin(record.epoch, intakes, 0.0, replayed=True)
                empty = not intakes  # of a source that is gone
                delivered = (
                    _Delivered() if empty else self._deliver(record.epoch, intakes, outlets, None, watch, recount)
                )
            self._finish(record, delivered, watch)

    def _count_again(
        self, epoch: Epoch, read: Callable[[], Mapping[str, Intake]], recount: Sequence[Outlet]
    ) -> tuple[EpochWatch, _Delivered]:
        watch: EpochWatch | None = None
        try:
            intakes = read() if recount else {}
            watch = self._begin(epoch, intakes, 0.0, replayed=True)
            return watch, self._deliver(epoch, intakes, (), None, watch, recount) if intakes else _Delivered()
        except Exception as error:
            log.warning("the rows of epoch %d, which every sink has, are not counted: %s", epoch.number, error)
            self._bad_rows.begin()
            return watch or self._begin(epoch, {}, 0.0, replayed=True), _Delivered()

    def _begin(
        self, epoch: Epoch, intakes: Mapping[str, Intake], waited_s: float, *, replayed: bool = False
    ) -> EpochWatch:
        if self._metrics is not None:
            self._metrics.begin(epoch.number)
        read_s = {node: intake.read_s for node, intake in intakes.items()}
        return EpochWatch(waited_s * 1000, read_s, replayed)

    def _deliver(
        self,
        epoch: Epoch,
        intakes: Mapping[str, Intake],
        outlets: Sequence[Outlet],
        max_bytes: int | None,
        watch: EpochWatch,
        recount: Sequence[Outlet] = (),
    ) -> _Delivered:
        """Raises EpochTooLarge if this process has to hold more than `max_bytes`."""
        self._bad_rows.begin()
        wanted, clock = [outlet.node for outlet in (*outlets, *recount)], watch.clock
        began_s = clock.seconds
        results = self._dataflow.compute(epoch, intakes, wanted=wanted, max_bytes=max_bytes, clock=clock)  # 3
        watch.computed_s = clock.seconds - began_s
        try:
            self._flush(results, outlets)  # 4
            again = self._recount(results, recount)
            self._read_unread(results)
            watch.flushed_s = clock.seconds
            rejects = self._dataflow.rejects(results, intakes)
            arrived = {outlet.node.id: outlet.flushed.rows_in for outlet in outlets if outlet.flushed is not None}
            counts, collected_bytes = self._dataflow.row_counts(results, rejects, arrived), results.collected_bytes
            event_times = self._dataflow.event_times(results, rejects)
            additions = self._dataflow.additions(results)
            self._uncollected_bytes += collected_bytes
            if self._sampler is not None:
                computed_s = clock.seconds
                self._sampler.take(results)
                watch.inspected_s = clock.seconds - computed_s
        finally:
            results.release()
        self._handle_rejects(epoch, rejects, intakes)
        # Last: once they are in the tables, a replay would find the rows of the epoch there.
        self._dataflow.add_values(additions)
        rows = sum(rejects[node].report.rows for node in intakes)
        for source in self._context.sources:
            if source.node in intakes:
                source.note_delivery(rejects[source.node].report, collected_bytes / max(rows, 1))
        for node, one in rejects.items():
            clock.add_computed(node, one.report.compute_ms / 1000)
        reports = {node: one.report for node, one in rejects.items()}
        phases = {node: intake.phases for node, intake in intakes.items()}
        return _Delivered(rows, counts, event_times, reports, phases, again)

    def _recount(self, results: Results, outlets: Sequence[Outlet]) -> dict[str, Flushed]:
        """By sink: what it has of this epoch, unless this process knows that already."""
        counted: dict[str, Flushed] = {}
        for outlet in outlets:
            report = self._recount_one(outlet, results)
            if report is not None and outlet.flushed is None:
                written = report.detail if isinstance(report.detail, int) else report.rows
                counted[outlet.node.id] = Flushed(
                    results.epoch.rows, report.rows, written, event_times=report.event_times
                )
        return counted

    def _recount_one(self, outlet: Outlet, results: Results) -> Report | None:
        """None if the rows cannot be computed again. The sink has the epoch, and dead letters do not depend on this."""
        recount = partial(self._dataflow.recount, outlet.node, results)
        while True:
            try:
                return self._context.retry(recount, f"counting the rows of sink '{outlet.name}'")
            except Exception as error:
                if isinstance(error, RowFailure) and self._dataflow.leave_out_bad_rows(results):
                    continue
                text = "the rows of sink '%s' in epoch %d, which it has, are not counted: %s"
                log.warning(text, outlet.name, results.epoch.number, error)
                return None

    def _flush(self, results: Results, outlets: Sequence[Outlet]) -> None:
        """Rows that a query cannot compute may become known here: then the sinks that lack the epoch get it without
        them, if `on_error` of the query allows it. On return all of its dead letters are known."""
        epoch = results.epoch
        while True:
            try:
                self._delivery.flush(results, [outlet for outlet in outlets if outlet.delivered != epoch.id])
                self._dataflow.compute_unread(results, [outlet.node for outlet in outlets])
                return
            except RowFailure:
                if not self._dataflow.leave_out_bad_rows(results):
                    raise

    def _read_unread(self, results: Results) -> None:
        """Read what Spark has not read, because a query cannot give a row, so that its rows are counted."""
        while True:
            try:
                self._dataflow.read_unread(results)
                return
            except Exception as error:  # every sink has the epoch
                if isinstance(error, RowFailure) and self._dataflow.leave_out_bad_rows(results):
                    continue
                log.warning("rows of epoch %d that no sink needs are not counted: %s", results.epoch.number, error)
                return

    def _handle_rejects(
        self,
        epoch: Epoch,
        rejects: Mapping[str, Rejects],
        intakes: Mapping[str, Intake],
    ) -> None:
        """Store or count the bad rows of sources and transforms before the epoch is finalized."""
        for node, node_rejects in rejects.items():
            stage = RejectStage.DECODE if node in intakes else RejectStage.TRANSFORM
            reject = partial(self._bad_rows.reject, epoch, node, stage, node_rejects)
            name = self._progress.node_name(node)
            step = self._context.activity.step(f"storing bad rows of epoch {epoch.number}", node)
            with step, log_fields(node=name):
                self._context.retry(reject, f"bad rows of '{name}'")

    def _count_rejects_of_sinks(self) -> None:
        """Of all that have the epoch, whether they got it now or before it was given up and replayed."""
        for outlet in self._context.outlets:
            if outlet.flushed is not None:
                rejected = outlet.flushed.bad_rows
                with log_fields(node=outlet.name):
                    self._bad_rows.count(outlet.node.id, RejectStage.WRITE, len(rejected), rejected)
            outlet.bad_rows = ()

    def _finish(self, record: Pending, delivered: _Delivered, watch: EpochWatch) -> None:
        epoch = record.epoch
        crash_point("before-finalize")
        with self._context.activity.step(f"finalizing epoch {epoch.number} in the state backend") as note_trouble:
            ask_state(lambda: self._context.journal.finalize(record), note_trouble)  # 5
        for source in self._context.sources:
            self._set_phase(source, epoch)
        self._count_rejects_of_sinks()
        self._bad_rows.finalized()
        self._count_rows(epoch, delivered, replayed=watch.replayed)
        crash_point("after-finalize")
        crash_point("before-group-commit")
        self._acknowledge(epoch)  # 6
        if epoch.loose_rows and self._context.same_rows:
            # After the sources have stored their positions: rows that they give again follow the same epoch.
            ask_state(lambda: self._context.journal.set_last_loose(epoch.number))
        self._count_epoch(epoch, watch.times(epoch.number, delivered.rows, self._sink_names))

    def _acknowledge(self, epoch: Epoch) -> None:
        acknowledges = self._context.acknowledges
        for source in self._context.sources:
            slices = [s for s in epoch.slices if s.node == source.node]
            if slices and (acknowledges or source.source.capabilities.phased):
                with self._context.activity.step(f"committing epoch {epoch.number}", source.node):
                    self._notify_source(source, slices)
        for id_, listener in self._listeners.items() if acknowledges else ():
            with self._context.activity.step(f"hearing that epoch {epoch.number} is finalized", id_):
                listener.finalized(epoch.number)

    def _notify_source(self, source: ReadAhead, slices: Sequence[Slice]) -> None:
        try:
            source.source.committed(slices)
        except Exception as error:  # the epoch is delivered and recorded, whatever the source does
            log.warning("source %s could not commit the delivered positions on its side: %s", source.node, error)

    def _count_rows(self, epoch: Epoch, delivered: _Delivered, *, replayed: bool) -> None:
        """Count the rows of a finalized epoch, at all nodes."""
        counts, event_times = dict(delivered.counts), dict(delivered.event_times)
        self._dataflow.count(delivered.reports)
        latencies = {node: report.latencies for node, report in delivered.reports.items()}
        for source in self._context.sources:
            phases = delivered.phases.get(source.node, {})
            if len(phases) > 1:
                counts[source.node] = self._count_earlier_phases(source.node, phases, counts[source.node])
                self._set_phase(source, epoch)
                *_, last = phases.values()
                latencies[source.node] = last.latencies
                if last.event_times is not None:
                    event_times[source.node] = last.event_times
        for outlet in self._context.outlets:
            flushed = outlet.finalized() or delivered.recounted.get(outlet.node.id)
            input_ = delivered.counts.get(outlet.node.inputs[0])
            if flushed is None:
                continue
            given = input_.rows_out if input_ is not None else None
            counts[outlet.node.id] = sink_counts(flushed, given, replayed=replayed)
            latencies[outlet.node.id] = flushed.latencies
            if flushed.event_times is not None:
                event_times[outlet.node.id] = flushed.event_times
            if flushed.skipped:
                meter = self._progress.meter(outlet.node.id)
                meter.reject("rows_skipped", flushed.skipped, stage=RejectStage.WRITE.value, reason=REFUSED)
        for node, times in event_times.items():
            self._progress.meter(node).note_event_times(times)
        for node, samples in latencies.items():
            self._progress.meter(node).merge(samples)
        for node, rows in counts.items():
            self._progress.meter(node).count(rows)
            if rows.unaccounted:
                name = self._progress.node_name(node)
                with log_fields(node=name):
                    text = "a bug in streamling: rows of '%s' in epoch %d are not accounted for: %s"
                    log.error(text, name, epoch.number, rows)

    def _set_phase(self, source: ReadAhead, epoch: Epoch) -> None:
        """Of several phases of an epoch, the last one."""
        phases = [source.source.phase(s) for s in epoch.slices if s.node == source.node]
        self._progress.meter(source.node).set_phase(next((phase for phase in reversed(phases) if phase), None))

    def _count_earlier_phases(self, node: str, phases: Mapping[str, Report], rows: RowCounts) -> RowCounts:
        """Count the rows of all phases but the last. What their readers give is not filtered: returns the rest."""
        meter = self._progress.meter(node)
        for phase, report in list(phases.items())[:-1]:
            meter.set_phase(phase)
            meter.count(RowCounts(None, report.rows))
            meter.merge(report.latencies)
            if report.event_times is not None:
                meter.note_event_times(report.event_times)
            rows = replace(rows, rows_out=max((rows.rows_out or 0) - report.rows, 0))
        return rows

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
