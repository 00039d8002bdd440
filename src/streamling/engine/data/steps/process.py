"""The process step: a processor turns rows into rows, in this process or in the workers that have the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamling.connector import Epoch, Placement, Processor, Report, Transform
from streamling.engine.data.intake import chunk_rows
from streamling.engine.data.reading import MAX_BAD_ROWS, BadRowFilter
from streamling.engine.data.report_book import ReportBook, given_to
from streamling.engine.data.results import EpochTooLarge, NodeRows, Results
from streamling.engine.data.spark_rows import make_table
from streamling.engine.data.steps.stages import RowCounter, Stages
from streamling.formats.arrow import arrow_schema, cast_batch
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import Schema
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.event_time import EventTimeColumn, event_time_of
from streamling.telemetry.stopwatch import Stopwatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class ProcessStep:
    """Rows of a large epoch stay in the workers if the transform may run there. Adjacent processors share a task."""

    def __init__(
        self,
        node: PlannedNode,
        input_: PlannedNode,
        transform: Transform,
        on_error: OnError,
        reports: ReportBook,
    ) -> None:
        self.node = node
        self._input = input_
        self._capabilities = transform.capabilities
        self._processor = transform.processor()
        self._on_error = on_error
        self._reports = reports
        self._event_time = event_time_of(node.spec, node.schema)

    def rows(self, results: Results, *, shared: bool) -> NodeRows:
        input_ = results.rows(self._input.id)
        if results.large and self._capabilities.placement is Placement.ANY and not input_.in_process:
            sender = self._reports.sender(results.session.sparkContext)
            stage = ProcessStage(
                self._processor,
                replace(results.epoch, tasks=_slots(results.session)),
                self._input.schema,
                self.node.id,
                self.node.spec.name,
                self.node.schema,
                self._on_error,
                sender,
                self._event_time,
                self._input.id,
            )
            stages = (input_.stages or Stages(input_.frame, ())).then(stage)
            unrepeatable = not self._capabilities.deterministic
            rows = NodeRows(results, self.node, stages=stages, shared=shared, unrepeatable=unrepeatable)
            if shared or unrepeatable:
                rows.compute()  # once, in a separate job: concurrent readers would each call the processor
            return rows
        return self._run_in_driver(results, input_, shared=shared)

    def _run_in_driver(self, results: Results, input_: NodeRows, *, shared: bool) -> NodeRows:
        limit = max_bad_rows(self._on_error)
        rows = BadRowFilter(
            self.node.spec.name,
            arrow_schema(self.node.schema),
            self._on_error,
            max_bad_rows=limit,
            event_time=self._event_time,
        )
        # Collect all rows before the processor gets the first: it may have state, so it must not get rows a second time
        # because Spark failed in the middle of them.
        input_batches = list(input_.batches())
        if not self._capabilities.deterministic:
            results.max_bytes = None  # for the same reason the epoch cannot be abandoned from here on
        batches: list[pa.RecordBatch] = []
        items = self._processor.process(results.epoch, iter(input_batches))
        # It may take minutes for the rows of an epoch: whatever it yields meanwhile is an advance.
        output = rows.batches(items, note_item=results.advance)
        for batch in results.clock.while_computed(self.node.id, output):
            batches.append(batch)
            if results.max_bytes is not None and rows.held_bytes > results.max_bytes:
                raise EpochTooLarge(self.node.spec.name, f"its rows are more than {results.max_bytes >> 20} MB")
        report = rows.report
        self._reports.add(results.epoch.id, self.node.id, report)
        table = make_table(self.node.schema, batches)
        return NodeRows(results, self.node, table=table, chunk_rows=chunk_rows(report), shared=shared)


def _slots(session: SparkSession) -> int:
    """How many tasks may run at once. At most so many share what a processor limits; there may be fewer."""
    return max(int(session.sparkContext.defaultParallelism), 1)


def max_bad_rows(on_error: OnError) -> int | None:
    """How many bad rows are kept. All of them if they become dead letters, because finding them again would need a
    second call of the processor; of skipped rows the first ones are enough for the log."""
    return None if on_error is OnError.DEAD_LETTER else MAX_BAD_ROWS


@dataclass(frozen=True, slots=True)
class ProcessStage:
    processor: Processor
    epoch: Epoch
    input_schema: Schema
    node_id: str
    node_name: str
    schema: Schema
    on_error: OnError
    sender: Any
    event_time: EventTimeColumn | None = None
    input_id: str = ""

    def run(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.input_schema)
        limit = max_bad_rows(self.on_error)
        rows = BadRowFilter(
            self.node_name,
            arrow_schema(self.schema),
            self.on_error,
            max_bad_rows=limit,
            event_time=self.event_time,
        )
        stopwatch, input_ = Stopwatch(), RowCounter()
        input_batches = (cast_batch(batch, schema, self.node_name) for batch in input_.count(stopwatch.input(batches)))
        epoch = replace(self.epoch, partition=partition)
        yield from stopwatch.output(rows.batches(self.processor.process(epoch, input_batches)))
        report = replace(rows.report, compute_ms=stopwatch.milliseconds)
        # The rows of a query in front of it are counted nowhere else.
        counted = {(self.epoch.id, given_to(self.input_id), partition, 0): Report(input_.rows)}
        self.sender.add({(self.epoch.id, self.node_id, partition, 0): report, **counted})
