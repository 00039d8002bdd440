"""The rows that a preview shows: a sink per node that keeps the first ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamling.connector import Applied, Epoch, Report, Sink, SinkCapabilities, Slice, Task
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import NodeOptions

if TYPE_CHECKING:
    import pyarrow as pa

# No node of a user can have this name: names must not begin with two underscores.
_PREFIX = "__preview:"


class FirstRows(Sink):
    """Keeps the first rows of a node as JSON. Any thread may read them."""

    capabilities = SinkCapabilities(observer=True)

    def __init__(self, node: PlannedNode, limit: int) -> None:
        self.node = node
        self._limit = limit
        self._lock = threading.Lock()
        self._rows: dict[str, list[str]] = {}
        """By epoch: one that fails is written again."""
        self._counts: dict[str, int] = {}

    def applied(self, slices: Sequence[Slice]) -> Applied:
        return Applied.NO

    def writer(self) -> FirstRows:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        from streamling.formats.json_encoding import encode_json

        rows: list[str] = []
        count = 0
        for batch in batches:
            missing = self._limit - len(rows)
            if missing > 0 and batch.num_rows:
                rows.extend(encode_json(batch.slice(0, missing), self.node.schema).to_pylist())
            count += batch.num_rows
        with self._lock:
            self._rows[epoch.id] = rows
            self._counts[epoch.id] = count
        return Report(count)

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The first rows of the run."""
        with self._lock:
            texts = [text for rows in self._rows.values() for text in rows][: self._limit]
        return [json.loads(text) for text in texts]

    @property
    def count(self) -> int:
        """How many rows there were."""
        with self._lock:
            return sum(self._counts.values())

    @property
    def complete(self) -> bool:
        return self.count >= self._limit


def add_first_rows(plan: Plan, nodes: Sequence[PlannedNode], limit: int) -> tuple[Plan, dict[str, FirstRows]]:
    """The plan with a sink for each of these nodes, and these sinks by reference name."""
    sinks: dict[str, FirstRows] = {}
    added: list[PlannedNode] = []
    for node in nodes:
        spec = replace(
            node.spec,
            role=Role.SINK,
            ref=f"{_PREFIX}{node.ref}",
            type="preview",
            options=NodeOptions.model_construct(type="preview"),
        )
        view = f"preview_{len(added)}"
        added.append(PlannedNode(spec, (node.ref,), node.columns, node.primary_key, view))
        sinks[spec.ref] = FirstRows(node, limit)
    return Plan((*plan.nodes, *added)), sinks
