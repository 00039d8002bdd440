"""A transform of a plugin in its run: rows of an epoch in, rows out, between two steps of Spark.

Delivery: rows of an epoch that is repeated after a crash pass the plugin again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamling.plugin.bases import RoundRobin
from streamling.plugin.contract import BadRow, Epoch, Runtime, TransformContext
from streamling.plugin.nodes.group import Group
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.kinds import PluginNode


class PluginTransform:
    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        self._node, self._options = node, options
        self._runtime: Runtime | None = None
        self._group: Group | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def open(self, context: TransformContext) -> None:
        from streamling.plugin.nodes.batches import Dealer

        self._context = context
        description = self._options.planned(self._node, context.input_schema).description
        placement = description.placement if description is not None else RoundRobin()
        self._dealer = Dealer(placement, context.primary_key, context.width)
        self._group = Group(self._node, self._options, self._runtime, context.width, context.input_schema)
        self._group.initialize()

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow]:
        from streamling.formats.exchange import to_plugin
        from streamling.plugin.nodes.batches import accepted, process, rebatched

        if self._group is None:
            raise AssertionError("not opened")
        size = getattr(self._options, "batch_size", None)
        for batch in rebatched(batches, size):
            dealt = self._dealer.dealt(to_plugin(batch, self._context.input_schema, self._node.name))
            bad: list[BadRow] = []
            results = process(self._group.instances, dealt, bad)
            yield from bad
            for result in results:
                yield from accepted(result, self._context.schema, self._node, "process_batch")
        for held in self._group.call("process_checkpoint_marker", epoch.number):
            yield from accepted(held, self._context.schema, self._node, "process_checkpoint_marker")

    def finalized(self, epoch: int) -> None:
        if self._group is not None:
            self._group.call("process_checkpoint_finalizer", epoch)

    def close(self) -> None:
        if self._group is not None:
            self._group.terminate()
            self._group = None
