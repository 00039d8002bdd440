"""Samples of the rows of an epoch for live inspection, taken after every sink has the epoch.

Rows that are in this process are sampled at no cost. The rows of other nodes, such as a query that Spark has computed
together with the next one, need a Spark job over a few rows. These jobs get a small share of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamling.engine.data.results import NodeRows, Results
from streamling.formats.arrow import arrow_schema, cast_batch
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.telemetry.inspection import Samples

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

log = logging.getLogger(__name__)

# The share of the time that jobs for samples may take on average, and what they may take at once.
_SHARE = 0.03
_BURST_S = 2.0
# The rows of a job are in the memory of Java and of this process.
_JOB_BYTES = 8 << 20
# A job that takes longer, because a source does not answer for example, is cancelled.
_LONGEST_JOB_S = 5.0
_JOB_GROUP = "inspection"


def sampled_nodes(plan: Plan) -> list[PlannedNode]:
    """The nodes whose rows are sampled: sources and transforms. The input of a sink is the output of another node."""
    tables = (*plan.lookups, *plan.dynamic_tables)
    return [node for node in (*plan.sources, *plan.transforms) if node not in tables]


class Sampler:
    """Gives rows of finished epochs to the samples. Nothing that fails here fails the epoch."""

    def __init__(self, plan: Plan, samples: Samples) -> None:
        self._samples = samples
        self._nodes = sampled_nodes(plan)
        self._allowance_s = _BURST_S
        self._updated = time.monotonic()
        samples.set_nodes([node.spec.name for node in self._nodes])

    def take(self, results: Results) -> None:
        """Sample the nodes that have credits left."""
        computed = []
        for node in self._nodes:
            count = self._samples.wanted(node.spec.name)
            if count and results.has(node.id):
                rows = results.rows(node.id)
                if rows.in_process or rows.last_batch is not None:
                    self._try(self._add_held, rows, count)
                else:
                    computed.append((rows, min(count, _affordable(results))))
        if computed:
            self._take_computed(results, computed)

    def _take_computed(self, results: Results, computed: list[tuple[NodeRows, int]]) -> None:
        now = time.monotonic()
        self._allowance_s = min(_BURST_S, self._allowance_s + (now - self._updated) * _SHARE)
        self._updated = now
        for rows, count in computed:
            if self._allowance_s <= 0:
                return
            began = time.monotonic()
            with _cancelled_when_late(results.session.sparkContext):
                self._try(self._add_computed, rows, count)
            self._allowance_s -= time.monotonic() - began
            # Next time another node has its turn first.
            self._nodes.remove(rows.node)
            self._nodes.append(rows.node)

    def _try(self, add: Callable[[NodeRows, int], None], rows: NodeRows, count: int) -> None:
        try:
            add(rows, count)
        except Exception as error:
            log.debug("no rows of '%s' could be sampled: %s", rows.node.spec.name, error)

    def _add_held(self, rows: NodeRows, count: int) -> None:
        held = rows.table() if rows.in_process else rows.last_batch
        if held is not None and held.num_rows:
            self._add(rows, held.slice(max(0, held.num_rows - count)))

    def _add_computed(self, rows: NodeRows, count: int) -> None:
        # In one task: Spark would otherwise start a task for every partition, and another one after a shuffle.
        self._add(rows, rows.frame.coalesce(1).limit(count).toArrow())

    def _add(self, rows: NodeRows, some: pa.Table | pa.RecordBatch) -> None:
        import pyarrow as pa

        from streamling.formats.json_excerpts import json_excerpts

        name, schema = rows.node.spec.name, arrow_schema(rows.schema)
        for batch in some.to_batches() if isinstance(some, pa.Table) else [some]:
            excerpts = json_excerpts(cast_batch(batch, schema, name), rows.schema, self._samples.longest_row)
            self._samples.add(name, excerpts)


def _affordable(results: Results) -> int:
    """How many rows a job may return, if the rows of nodes are about as large as those of the sources."""
    epoch = results.epoch
    return max(1, _JOB_BYTES * max(1, epoch.rows) // max(1, epoch.bytes))


@contextmanager
def _cancelled_when_late(context: SparkContext) -> Iterator[None]:
    context.setJobGroup(_JOB_GROUP, "samples for live inspection", True)
    timer = threading.Timer(_LONGEST_JOB_S, context.cancelJobGroup, (_JOB_GROUP,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)
