"""A sink without a ledger: what such sinks have in common."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plugin.contract import Ack, Applied, Epoch, Guarantee, Placement, SinkCapabilities, SinkContext, Slice


class SimpleSink:
    """Defaults for a sink that writes in the driver and cannot tell an epoch it has from one it has not.

    What remains to be written is `writer`. Delivery is at least once.
    """

    capabilities = SinkCapabilities(Placement.DRIVER, Guarantee.AT_LEAST_ONCE)
    target: str | None = None

    def open(self, context: SinkContext) -> None:
        return

    def applied(self, slices: Sequence[Slice]) -> Applied:
        return Applied.UNKNOWN

    def abandon(self, epoch: Epoch) -> Applied:
        return Applied.NO

    def commit(self, epoch: Epoch, acks: Sequence[Ack]) -> int:
        return sum(ack.rows for ack in acks)

    def abort(self, epoch: Epoch) -> None:
        return

    def close(self) -> None:
        return
