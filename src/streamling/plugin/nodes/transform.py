"""The transform of a plugin.

Most plugins get markers and may hold rows back until then: they stay in the driver, which gives them the rows of an
epoch in order. One that declares itself `stateless` goes where the rows are (see `processor`).

Delivery: rows of an epoch that is replayed after a crash pass the plugin again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamling.connector import (
    BadRow,
    Epoch,
    Placement,
    Processor,
    Transform,
    TransformCapabilities,
    TransformContext,
)
from streamling.plugin.nodes.row_receiver import RowReceiver
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.kinds import PluginNode


class PluginTransform(RowReceiver, Transform):
    """A transform that gets markers. It is its own processor: it stays in the driver."""

    capabilities = TransformCapabilities(Placement.DRIVER)

    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        super().__init__(node, options)
        self._context: TransformContext | None = None

    def open(self, context: TransformContext) -> None:
        self._context = context
        self.open_group(context.input_schema, context.primary_key, context.width)

    def processor(self) -> Processor:
        return self

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow]:
        from streamling.formats.arrow import rebatch
        from streamling.plugin.nodes.batches import accept_batches, process

        if self._context is None:
            raise AssertionError("not opened")
        group, schema = self.group, self._context.schema
        for batch in rebatch(batches, self.batch_rows):
            bad: list[BadRow] = []
            results = process(group.instances, self.deal(batch), bad)
            self.advance()
            yield from bad
            for result in results:
                yield from accept_batches(result, schema, self._node.name, self._node.described(), "process_batch")
        for held in group.call("process_checkpoint_marker", epoch.number):
            method = "process_checkpoint_marker"
            yield from accept_batches(held, schema, self._node.name, self._node.described(), method)
