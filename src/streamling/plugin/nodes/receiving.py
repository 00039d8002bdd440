"""What transforms and sinks of plugins have in common: rows come in and are dealt to the instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.connector import Runtime
from streamling.plan.types import Schema
from streamling.plugin.bases import RoundRobin
from streamling.plugin.nodes.group import Group
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.kinds import PluginNode


class Receiving:
    """Mix-in: a group of instances that get rows, from `open` to `close`."""

    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        self._node, self._options = node, options
        self._runtime: Runtime | None = None
        self._group: Group | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def open_group(self, rows: Schema, key: tuple[str, ...], width: int) -> None:
        """Make the instances that get these rows, and let them open their connections."""
        from streamling.plugin.nodes.batches import Dealer

        description = self._options.planned(self._node, rows).description
        placement = description.placement if description is not None else RoundRobin()
        self._rows, self._dealer = rows, Dealer(placement, key, width)
        self._group = Group(self._node, self._options, self._runtime, width, rows)
        self._group.initialize()

    @property
    def batch_rows(self) -> int | None:
        """In pieces of how many rows the plugin wants its input; None = as it comes."""
        return self._options.batch_limits[0]

    @property
    def group(self) -> Group:
        if self._group is None:
            raise AssertionError("not opened")
        return self._group

    def dealt(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows as plugins see them, one batch for each instance."""
        from streamling.formats.exchange import to_plugin

        return self._dealer.dealt(to_plugin(batch, self._rows, self._node.name))

    def finalized(self, epoch: int) -> None:
        self.group.call("process_checkpoint_finalizer", epoch)

    def close(self) -> None:
        if self._group is not None:
            self._group.terminate()
            self._group = None
