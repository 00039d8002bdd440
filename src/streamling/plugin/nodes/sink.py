"""The sink of a plugin: it stays in the driver and gets one epoch at a time.

Delivery: at least once. An epoch is committed when `process_checkpoint_marker` of every instance has returned; an epoch
that is replayed after a crash delivers its rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Epoch, Report, Sink, SinkCapabilities, SinkContext, Task, batch_policy
from streamling.plugin.nodes.row_receiver import RowReceiver
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.kinds import PluginNode


class PluginSink(RowReceiver, Sink):
    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        super().__init__(node, options)
        self.capabilities = SinkCapabilities(batch=batch_policy(options))

    def open(self, context: SinkContext) -> None:
        self.open_group(context.schema, context.primary_key, context.width)

    def writer(self) -> PluginSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        from streamling.formats.arrow import rebatch
        from streamling.plugin.nodes.batches import process

        group, rows = self.group, 0
        bad: list[BadRow] = []
        for batch in rebatch(batches, self.batch_rows):
            process(group.instances, self.deal(batch), bad)
            self.advance()
            rows += batch.num_rows
            if bad and self._options.on_error is OnError.FAIL:
                break  # this ends the run; the plugin should not see more
        return Report(rows - len(bad), len(bad), tuple(bad))

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        self.group.call("process_checkpoint_marker", epoch.number)
        return sum(report.rows for report in reports)
