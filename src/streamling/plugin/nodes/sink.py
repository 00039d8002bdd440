"""A sink of a plugin in its run: written in the driver, an epoch at a time.

Delivery: at least once. The epoch counts when `process_checkpoint_marker` of every instance has returned; one that is
repeated after a crash brings its rows again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from streamling.plugin.contract import Ack, BadRow, Epoch, SinkContext, Task
from streamling.plugin.nodes.receiving import Receiving
from streamling.plugin.simple import SimpleSink
from streamling.spec.options import OnError

if TYPE_CHECKING:
    import pyarrow as pa


class PluginSink(Receiving, SimpleSink):
    def open(self, context: SinkContext) -> None:
        self.open_group(context.schema, context.primary_key, context.width)

    def writer(self) -> PluginSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Ack:
        from streamling.plugin.nodes.batches import process, rebatched

        group, rows = self.group, 0
        bad: list[BadRow] = []
        for batch in rebatched(batches, getattr(self._options, "batch_size", None)):
            began = time.monotonic()
            process(group.instances, self.dealt(batch), bad)
            group.recorder.record_latency("elapsed_compute", (time.monotonic() - began) * 1000)
            rows += batch.num_rows
            if bad and self._options.on_error is OnError.FAIL:
                break  # this ends the run; the plugin should not see more
        return Ack(rows - len(bad), refused=tuple(bad))

    def commit(self, epoch: Epoch, acks: Sequence[Ack]) -> int:
        self.group.call("process_checkpoint_marker", epoch.number)
        return sum(ack.rows for ack in acks)
