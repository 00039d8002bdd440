"""What transforms and sinks of plugins have in common: they distribute their input to the instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.connector import Runtime
from streamling.plan.types import Schema
from streamling.plugin.bases import RoundRobin
from streamling.plugin.nodes.group import InstanceGroup
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.batches import Dealer
    from streamling.plugin.nodes.kinds import PluginNode


@dataclass(frozen=True, slots=True)
class _Receivers:
    """What `open_group` makes: the instances, the columns of the rows they get, and which instance gets which row."""

    group: InstanceGroup
    columns: Schema
    dealer: Dealer


class RowReceiver:
    """Mix-in: a group of instances that get rows, from `open` to `close`."""

    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        self._node = node
        self._options = options
        self._runtime: Runtime | None = None
        self._open_receivers: _Receivers | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def open_group(self, columns: Schema, key: tuple[str, ...], width: int) -> None:
        """Make the instances that get rows of these columns, and let them open their connections."""
        from streamling.plugin.nodes.batches import Dealer

        description = self._options.ask_plugin(self._node, columns).description
        placement = description.placement if description is not None else RoundRobin()
        dealer = Dealer(placement, key, width)
        group = InstanceGroup(self._node, self._options, self._runtime, width, columns)
        self._open_receivers = _Receivers(group, columns, dealer)  # before `initialize`, so that `close` ends them
        group.initialize()

    def advance(self) -> None:
        """A batch is processed: an epoch of many batches may take long."""
        if self._runtime is not None:
            self._runtime.advance()

    @property
    def batch_rows(self) -> int | None:
        """The batch size that the node asks for; None = batches as they come."""
        return self._options.batch_limits[0]

    @property
    def group(self) -> InstanceGroup:
        return self._receivers.group

    @property
    def _receivers(self) -> _Receivers:
        if self._open_receivers is None:
            raise AssertionError("not opened")
        return self._open_receivers

    def deal(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows as plugins get them, one batch for each instance."""
        from streamling.formats.exchange import to_plugin

        receivers = self._receivers
        return receivers.dealer.deal(to_plugin(batch, receivers.columns, self._node.name))

    def finalized(self, epoch: int) -> None:
        self.group.call("process_checkpoint_finalizer", epoch)

    def close(self) -> None:
        if self._open_receivers is not None:
            self._open_receivers.group.terminate()
            self._open_receivers = None
