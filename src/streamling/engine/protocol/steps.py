"""The steps of one epoch: record, transform, flush, finalize, commit."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Mapping, Sequence
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
from streamling.engine.protocol.delivery import Delivery, Outlet
from streamling.engine.protocol.pending import Pending
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state.store import ask_state
from streamling.letters.letter import RejectStage
from streamling.testing.crash import crash_point

log = logging.getLogger(__name__)

# Java frees a DataFrame when Python's collector frees its proxy, and nothing else makes the collector run often enough.
_COLLECT_EVERY = 50
_COLLECT_BYTES = 32 << 20

Bounds = tuple[tuple[str, str], ...]
"""The slices of an epoch: their keys, starts and ends."""


def bounds(epoch: Epoch) -> Bounds:
    return tuple((s.key, json.dumps([s.start, s.end], sort_keys=True)) for s in epoch.slices)


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
        sampler: Sampler | None = None,
    ) -> None:
        self._context = context
        self._sampler = sampler
        self._dataflow = dataflow
        self._delivery = delivery
        self._bad_rows = bad_rows
        self._listeners = listeners
        self._progress = progress
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

    def run(self, epoch: Epoch, intakes: Mapping[str, Intake], max_bytes: int | None) -> None:
        """Steps 2 to 6. Raises EpochTooLarge if the epoch takes more than `max_bytes` in this process."""
        began = time.monotonic()
        with self._context.activity.step(f"recording epoch {epoch.number} in the state backend"):
            record = ask_state(lambda: self._context.journal.record(epoch, self._context.fingerprint))  # 2
        crash_point("after-record")
        rows = self._deliver(record.epoch, intakes, self._context.outlets, max_bytes)
        self._finish(record, rows, began)

    def replay(self, record: Pending, intakes: Mapping[str, Intake], outlets: Sequence[Outlet]) -> None:
        """Steps 3 to 6 of a recorded epoch, for the sinks that lack it. Without intakes: steps 5 and 6."""
        began = time.monotonic()
        rows = self._deliver(record.epoch, intakes, outlets, None) if intakes else 0
        self._finish(record, rows, began)

    def _deliver(
        self, epoch: Epoch, intakes: Mapping[str, Intake], outlets: Sequence[Outlet], max_bytes: int | None
    ) -> int:
        """Returns the number of rows read. Raises EpochTooLarge if this process has to hold more than `max_bytes`."""
        self._bad_rows.begin()
        wanted = [outlet.node for outlet in outlets]
        results = self._dataflow.compute(epoch, intakes, wanted=wanted, max_bytes=max_bytes)  # 3
        try:
            self._flush(results, outlets)  # 4
            rejects = self._dataflow.rejects(results, intakes)
            row_counts, collected_bytes = dict(results.row_counts), results.collected_bytes
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
        known = {node: reject.report.rows for node, reject in rejects.items() if reject.report.rows or node in intakes}
        self._progress.count_node_rows(row_counts | known)
        return rows

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

    def _finish(self, record: Pending, rows: int, began: float) -> None:
        epoch = record.epoch
        crash_point("before-finalize")
        with self._context.activity.step(f"finalizing epoch {epoch.number} in the state backend"):
            ask_state(lambda: self._context.journal.finalize(record))  # 5
        self._bad_rows.finalized()
        crash_point("after-finalize")
        crash_point("before-group-commit")
        if self._context.acknowledges:
            self._acknowledge(epoch)  # 6
        if epoch.loose_rows and self._context.same_rows:
            # After the sources have stored their positions: rows that they give again follow the same epoch.
            ask_state(lambda: self._context.journal.set_last_loose(epoch.number))
        self._count_epoch(epoch, rows, time.monotonic() - began)

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

    def _count_epoch(self, epoch: Epoch, rows: int, seconds: float) -> None:
        self.epochs += 1
        self.rows += rows
        self._context.capacity.after_epoch(epoch.rows, epoch.bytes)
        self._progress.count_epoch(rows, seconds * 1000)
        log.info("Epoch finalized: number=%d rows=%d ms=%.0f", epoch.number, rows, seconds * 1000)
        self._uncollected_bytes += epoch.bytes
        if self.epochs % _COLLECT_EVERY == 0 or self._uncollected_bytes >= _COLLECT_BYTES:
            self._uncollected_bytes = 0
            gc.collect()
