"""`blackhole`: counts rows and forgets them.

Delivery: there is nothing to lose or to double.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.plugin.contract import (
    Ack,
    Applied,
    Epoch,
    Guarantee,
    Placement,
    SinkCapabilities,
    SinkContext,
    Slice,
    Task,
)
from streamling.plugin.registry import Kind, register
from streamling.spec.options import Batched, Parallel, SinkOptions
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


class BlackholeOptions(Batched, Parallel, SinkOptions):
    """For trying a pipeline without a target, and for measuring it."""


@dataclass(frozen=True, slots=True)
class BlackholeWriter:
    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Ack:
        return Ack(sum(batch.num_rows for batch in batches))


class BlackholeSink:
    capabilities = SinkCapabilities(Placement.ANY, Guarantee.AT_LEAST_ONCE)
    target: str | None = None

    def open(self, context: SinkContext) -> None:
        return

    def applied(self, slices: Sequence[Slice]) -> Applied:
        return Applied.NO

    def abandon(self, epoch: Epoch) -> Applied:
        return Applied.NO

    def writer(self) -> BlackholeWriter:
        return BlackholeWriter()

    def commit(self, epoch: Epoch, acks: Sequence[Ack]) -> int:
        return sum(ack.rows for ack in acks)

    def abort(self, epoch: Epoch) -> None:
        return

    def close(self) -> None:
        return


def _build(node: NodeSpec, settings: Settings) -> BlackholeSink:
    return BlackholeSink()


register(Kind(Role.SINK, "blackhole", BlackholeOptions, _build))
