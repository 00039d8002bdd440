"""A sink of a plugin in its run: written in the driver, an epoch at a time.

Delivery: at least once. The epoch counts when `process_checkpoint_marker` of every instance has returned; one that is
repeated after a crash brings its rows again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from streamling.plugin.bases import RoundRobin
from streamling.plugin.contract import Ack, BadRow, Epoch, Runtime, SinkContext, Task
from streamling.plugin.nodes.group import Group
from streamling.plugin.simple import SimpleSink
from streamling.spec.options import OnError
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.kinds import PluginNode


class PluginSink(SimpleSink):
    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        self._node, self._options = node, options
        self._runtime: Runtime | None = None
        self._group: Group | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def open(self, context: SinkContext) -> None:
        from streamling.plugin.nodes.batches import Dealer

        self._context = context
        description = self._options.planned(self._node, context.schema).description
        placement = description.placement if description is not None else RoundRobin()
        self._dealer = Dealer(placement, context.primary_key, context.width)
        self._group = Group(self._node, self._options, self._runtime, context.width, context.schema)
        self._group.initialize()

    def writer(self) -> PluginSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Ack:
        from streamling.formats.exchange import to_plugin
        from streamling.plugin.nodes.batches import process, rebatched

        group, rows = self._opened(), 0
        bad: list[BadRow] = []
        for batch in rebatched(batches, getattr(self._options, "batch_size", None)):
            began = time.monotonic()
            process(group.instances, self._dealer.dealt(to_plugin(batch, self._context.schema, self._node.name)), bad)
            group.recorder.record_latency("elapsed_compute", (time.monotonic() - began) * 1000)
            rows += batch.num_rows
            if bad and self._options.on_error is OnError.FAIL:
                break  # this ends the run; the plugin should not see more
        return Ack(rows - len(bad), refused=tuple(bad))

    def commit(self, epoch: Epoch, acks: Sequence[Ack]) -> int:
        self._opened().call("process_checkpoint_marker", epoch.number)
        return sum(ack.rows for ack in acks)

    def finalized(self, epoch: int) -> None:
        self._opened().call("process_checkpoint_finalizer", epoch)

    def close(self) -> None:
        if self._group is not None:
            self._group.terminate()
            self._group = None

    def _opened(self) -> Group:
        if self._group is None:
            raise AssertionError(f"{self._node.described()} is not open")
        return self._group
