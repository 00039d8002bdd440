"""The rows that a preview shows: a sink per node, which keeps the first rows or passes samples on."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamling.connector import Applied, Epoch, Report, Sink, SinkCapabilities, Slice, Task
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import NodeOptions
from streamling.telemetry.inspection import Sample, Samples

if TYPE_CHECKING:
    import pyarrow as pa

Emit = Callable[[Sequence[Sample]], object]
# No node of a user can have this name: names must not begin with two underscores.
_PREFIX = "__preview:"


class PreviewSink(Sink):
    """Gets the rows of one node. Any thread may read the attributes."""

    capabilities = SinkCapabilities(observer=True)

    def __init__(self, node: PlannedNode) -> None:
        self.node = node
        self.complete = False
        """Whether it needs no more rows."""

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The rows to show at the end."""
        return []

    @property
    @abstractmethod
    def count(self) -> int:
        """How many rows there were."""

    def applied(self, slices: Sequence[Slice]) -> Applied:
        return Applied.NO


class FirstRows(PreviewSink):
    """Keeps the first rows."""

    def __init__(self, node: PlannedNode, limit: int, on_complete: Callable[[], object]) -> None:
        """`on_complete` is called as soon as there are enough rows."""
        super().__init__(node)
        self._limit = limit
        self._on_complete = on_complete
        self._lock = threading.Lock()
        self._rows: dict[str, list[Mapping[str, Any]]] = {}
        """By epoch: one that fails is written again."""
        self._counts: dict[str, int] = {}

    def writer(self) -> FirstRows:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        from streamling.formats.json import json_objects

        missing = self._limit - self._count_before(epoch)
        rows: list[Mapping[str, Any]] = []
        count = 0
        for batch in batches:
            wanted = min(missing - len(rows), batch.num_rows)
            if wanted > 0:
                rows.extend(json_objects(batch, range(wanted), self.node.schema))
            count += batch.num_rows
        with self._lock:
            self._rows[epoch.id] = rows
            self._counts[epoch.id] = count
        self.complete = self.count >= self._limit
        if self.complete:
            self._on_complete()
        return Report(count)

    def abort(self, epoch: Epoch) -> None:
        """Its rows come again, perhaps in smaller epochs; unless there are enough: then nothing more is read."""
        if self.complete:
            return
        with self._lock:
            self._rows.pop(epoch.id, None)
            self._counts.pop(epoch.id, None)

    def _count_before(self, epoch: Epoch) -> int:
        with self._lock:
            return sum(count for id_, count in self._counts.items() if id_ != epoch.id)

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        with self._lock:
            return [row for rows in self._rows.values() for row in rows][: self._limit]

    @property
    def count(self) -> int:
        with self._lock:
            return sum(self._counts.values())


class SampledRows(PreviewSink):
    """Passes on the newest rows of every epoch, as many as there are credits for.

    While no node has credits left it waits: rows that are not shown need not be computed.
    """

    def __init__(self, node: PlannedNode, samples: Samples, emit: Emit, pause: Callable[[], object]) -> None:
        super().__init__(node)
        self._samples = samples
        self._emit = emit
        self._pause = pause
        self._count = 0

    def writer(self) -> SampledRows:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        from streamling.formats.json_excerpts import json_excerpts

        name = self.node.spec.name
        wanted = self._samples.wanted(name)
        rows: list[str] = []
        count = 0
        for batch in batches:
            newest = batch.slice(max(0, batch.num_rows - wanted)) if wanted else batch.slice(0, 0)
            rows = [*rows, *json_excerpts(newest, self.node.schema, self._samples.longest_row)][-wanted:]
            count += batch.num_rows
        self._emit(self._samples.add(name, rows))
        self._count += count
        self._pause()
        return Report(count)

    @property
    def count(self) -> int:
        return self._count


def add_preview_sinks(
    plan: Plan, nodes: Sequence[PlannedNode], make: Callable[[PlannedNode], PreviewSink]
) -> tuple[Plan, dict[str, PreviewSink]]:
    """The plan with a sink for each of these nodes, and these sinks by reference name."""
    sinks: dict[str, PreviewSink] = {}
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
        sinks[spec.ref] = make(node)
    return Plan((*plan.nodes, *added)), sinks
