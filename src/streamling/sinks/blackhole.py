"""`blackhole`: counts rows and discards them.

Delivery: nothing is kept, so nothing can be lost or duplicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.connector import (
    Applied,
    Epoch,
    Kind,
    Placement,
    Report,
    Sink,
    SinkCapabilities,
    Slice,
    Task,
    batch_policy,
    register,
)
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Batched, NodeOptions, Parallel, SinkOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


class BlackholeOptions(Batched, Parallel, SinkOptions):
    """For trying a pipeline without a target, and for measuring it."""


@dataclass(frozen=True, slots=True)
class BlackholeWriter:
    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        return Report(sum(batch.num_rows for batch in batches))


class BlackholeSink(Sink):
    def __init__(self, options: NodeOptions) -> None:
        self.capabilities = SinkCapabilities(Placement.ANY, discards=True, batch=batch_policy(options))

    def applied(self, slices: Sequence[Slice]) -> Applied:
        return Applied.NO

    def writer(self) -> BlackholeWriter:
        return BlackholeWriter()


def _build(node: NodeSpec, settings: Settings) -> BlackholeSink:
    return BlackholeSink(node.options)


register(Kind(Role.SINK, "blackhole", BlackholeOptions, _build))
