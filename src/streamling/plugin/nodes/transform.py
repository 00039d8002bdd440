"""A transform of a plugin in its run: rows of an epoch in, rows out, between two steps of Spark.

Delivery: rows of an epoch that is repeated after a crash pass the plugin again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamling.plugin.contract import BadRow, Epoch, TransformContext
from streamling.plugin.nodes.receiving import Receiving

if TYPE_CHECKING:
    import pyarrow as pa


class PluginTransform(Receiving):
    def open(self, context: TransformContext) -> None:
        self._schema = context.schema
        self.open_group(context.input_schema, context.primary_key, context.width)

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow]:
        from streamling.plugin.nodes.batches import accepted, process, rebatched

        group = self.group
        for batch in rebatched(batches, getattr(self._options, "batch_size", None)):
            bad: list[BadRow] = []
            results = process(group.instances, self.dealt(batch), bad)
            yield from bad
            for result in results:
                yield from accepted(result, self._schema, self._node, "process_batch")
        for held in group.call("process_checkpoint_marker", epoch.number):
            yield from accepted(held, self._schema, self._node, "process_checkpoint_marker")
