"""`memory`: keeps rows in the process, for tests.

Delivery: each epoch is kept once as long as the process lives; rows of an epoch appear when it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from streamling.connector import (
    Applied,
    Epoch,
    Kind,
    Report,
    Sink,
    SinkCapabilities,
    Slice,
    Task,
    batch_policy,
    register,
)
from streamling.plan.types import OPERATION_COLUMN
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Batched, Parallel, SinkOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


class MemoryOptions(Batched, Parallel, SinkOptions):
    """Rows kept in the process; `streamling.run` returns them to the program that called it."""

    exclude_gs_op: bool = Field(default=False, description="Leave the column `_gs_op` out.")


class MemorySink(Sink):
    def __init__(self, node: NodeSpec, exclude_operation: bool) -> None:
        self.capabilities = SinkCapabilities(batch=batch_policy(node.options))
        self._exclude_operation = exclude_operation
        self._uncommitted: dict[str, list[dict[str, Any]]] = {}
        self._committed: list[dict[str, Any]] = []

    def applied(self, slices: Sequence[Slice]) -> Applied:
        return Applied.NO

    def writer(self) -> MemorySink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        rows: list[dict[str, Any]] = []
        for batch in batches:
            columns = batch.drop_columns([OPERATION_COLUMN]) if self._exclude_operation else batch
            rows.extend(columns.to_pylist())
        self._uncommitted[epoch.id] = rows
        return Report(len(rows))

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        rows = self._uncommitted.pop(epoch.id)
        self._committed.extend(rows)
        return len(rows)

    def result(self) -> list[dict[str, Any]]:
        return self._committed

    def abort(self, epoch: Epoch) -> None:
        self._uncommitted.pop(epoch.id, None)


def _build(node: NodeSpec, settings: Settings) -> MemorySink:
    if not isinstance(node.options, MemoryOptions):
        raise TypeError(node.options)
    return MemorySink(node, node.options.exclude_gs_op)


register(Kind(Role.SINK, "memory", MemoryOptions, _build))
