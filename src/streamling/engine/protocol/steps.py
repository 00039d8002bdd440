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
from streamling.engine.protocol.bad_rows import BadRows, Rejects, Stage
from streamling.engine.protocol.context import RunContext
from streamling.engine.protocol.delivery import Delivery, Outlet
from streamling.engine.protocol.pending import Pending
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state.store import patiently
from streamling.testing.crash import crash_point

log = logging.getLogger(__name__)

# Spark's side of a DataFrame is freed when Python's collector finds its proxy, and nothing else would run it often.
_COLLECT_EVERY = 50
_COLLECT_BYTES = 32 << 20

Bounds = tuple[tuple[str, str], ...]
"""The slices of an epoch: their keys, starts and ends."""


def bounds(epoch: Epoch) -> Bounds:
    return tuple((s.key, json.dumps([s.start, s.end], sort_keys=True)) for s in epoch.slices)


class EpochSteps:
    """Takes an epoch through its steps, and counts what is finalized."""

    def __init__(
        self,
        context: RunContext,
        dataflow: Dataflow,
        delivery: Delivery,
        bad_rows: BadRows,
        listeners: Sequence[Source | Transform | Sink],
        progress: Progress,
    ) -> None:
        self._context = context
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
        """Whether bad rows are stored, and have to be found again when an epoch is replayed."""
        return self._bad_rows.keeps_letters

    def run(self, epoch: Epoch, intakes: Mapping[str, Intake], max_bytes: int | None) -> None:
        """Steps 2 to 6. Raises EpochTooLarge if the epoch takes more than `max_bytes` in this process."""
        began = time.monotonic()
        record = patiently(lambda: self._context.journal.record(epoch, self._context.fingerprint))  # 2
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
        """Returns the rows that were read. Beyond `max_bytes` in this process it raises EpochTooLarge."""
        wanted = [outlet.node for outlet in outlets]
        results = self._dataflow.compute(epoch, intakes, wanted=wanted, most_bytes=max_bytes)  # 3
        try:
            self._delivery.flush(results, outlets)  # 4
            rejects = self._dataflow.rejects(results, intakes)
            counted, collected_bytes = dict(results.counted), results.collected_bytes
            self._uncollected_bytes += collected_bytes
        finally:
            results.release()
        self._set_aside(epoch, rejects, intakes, outlets)
        rows = sum(rejects[node].report.rows for node in intakes)
        for source in self._context.sources:
            if source.node in intakes:
                source.delivered(rejects[source.node].report, collected_bytes / max(rows, 1))
        self._dataflow.count(rejects)
        self._progress.epoch_passed(counted | {node: reject.report.rows for node, reject in rejects.items()})
        return rows

    def _set_aside(
        self,
        epoch: Epoch,
        rejects: Mapping[str, Rejects],
        intakes: Mapping[str, Intake],
        outlets: Sequence[Outlet],
    ) -> None:
        """Bad rows are durable, or counted, before the epoch is finalized."""
        for node, rejected in rejects.items():
            stage = Stage.DECODE if node in intakes else Stage.TRANSFORM
            store = partial(self._bad_rows.set_aside, epoch, node, stage, rejected)
            self._context.retry(store, f"bad rows of '{node}'")
        for outlet in outlets:
            self._bad_rows.note(outlet.node.id, len(outlet.bad_rows), outlet.bad_rows)
            outlet.bad_rows = ()

    def _finish(self, record: Pending, rows: int, began: float) -> None:
        epoch = record.epoch
        crash_point("before-finalize")
        patiently(lambda: self._context.journal.finalize(record))  # 5
        crash_point("after-finalize")
        crash_point("before-group-commit")
        for source in self._context.sources:  # 6
            mine = [s for s in epoch.slices if s.node == source.node]
            if mine:
                self._tell(source, mine)
        for listener in self._listeners:
            listener.finalized(epoch.number)
        self._account(epoch, rows, time.monotonic() - began)

    def _tell(self, source: ReadAhead, slices: Sequence[Slice]) -> None:
        try:
            source.source.committed(slices)
        except Exception as error:  # the rows are delivered and recorded; what the source does with it is extra
            log.warning("source %s could not take note of what is delivered: %s", source.node, error)

    def _account(self, epoch: Epoch, rows: int, seconds: float) -> None:
        self.epochs += 1
        self.rows += rows
        self._context.capacity.after_epoch(epoch.rows, epoch.bytes)
        self._progress.epoch(rows, seconds * 1000)
        log.info("Epoch finalized: number=%d rows=%d ms=%.0f", epoch.number, rows, seconds * 1000)
        self._uncollected_bytes += epoch.bytes
        if self.epochs % _COLLECT_EVERY == 0 or self._uncollected_bytes >= _COLLECT_BYTES:
            self._uncollected_bytes = 0
            gc.collect()
