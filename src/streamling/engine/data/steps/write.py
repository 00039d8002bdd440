"""The write step: a sink's writer gets the rows of its input, in this process or in the workers that have the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamling.connector import Epoch, Placement, Report, Sink, Task, Writer
from streamling.connector.reports import combine
from streamling.engine.data.report_book import given_to
from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.spark_errors import spark_errors
from streamling.engine.data.spark_rows import count_rows
from streamling.engine.data.steps.stages import RowCounter, Stages
from streamling.errors import SPARK_FAILED, TransientError
from streamling.formats.arrow import arrow_schema, cast_batch
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import Schema
from streamling.telemetry.event_time import EventTimeColumn, EventTimes, event_time_of

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.engine.data.exclusions import Exclusions

_ATTEMPT_SCHEMA = "partition INT, attempt BIGINT"


class WriteStep:
    def __init__(self, node: PlannedNode, input_: PlannedNode, sink: Sink) -> None:
        self.node = node
        self._input = input_
        self._sink = sink
        self._event_time = event_time_of(node.spec, input_.schema)

    def write(self, results: Results, exclusions: Exclusions, *, final: bool = True) -> list[Report]:
        """Write an epoch without the excluded rows; returns one report per writer. `final`: see `Task`."""
        rows, capabilities = results.rows(self._input.id), self._sink.capabilities
        if results.large and not rows.in_process and not exclusions:
            if capabilities.discards:
                with results.clock.waiting(self.node.id):
                    return [Report(self._count(results, rows))]
            if capabilities.placement is Placement.ANY:
                return self._write_on_executors(results, rows)
        batches = results.clock.while_pulled(self.node.id, rows.batches())
        measured = Measured(self._event_time)
        report = self._sink.writer().write(
            results.epoch, Task(0, 0, final), measured.pass_on(exclusions.filter(batches))
        )
        return [measured.add_to(report)]

    def recount(self, results: Results) -> Report:
        """The rows of an epoch that the sink has already: `detail` is how many it has written."""
        rows = results.rows(self._input.id)
        if results.large and not rows.in_process and self._sink.capabilities.placement is Placement.ANY:
            counted = self._count(results, rows)
            return Report(counted, detail=counted)
        measured, arrived = Measured(self._event_time), RowCounter()
        batches = arrived.count(measured.pass_on(rows.batches(limited=False)))
        written = self._sink.recount(batches)
        return measured.add_to(Report(arrived.rows, detail=written))

    def _write_on_executors(self, results: Results, rows: NodeRows) -> list[Report]:
        """Let the executors write; the reports are those of the attempts that Spark counts as successful."""
        session, epoch, name = results.session, results.epoch, self.node.spec.name
        sender = results.reports.sender(session.sparkContext)
        stage = WriteStage(
            self._sink.writer(), epoch, self._input.schema, self.node.id, name, sender, self._event_time, self._input.id
        )
        with spark_errors(self._input.spec.name):
            start = rows.stages or Stages(rows.frame, ())
            frame = start.then(stage).run(_ATTEMPT_SCHEMA)
            attempts = frame.toArrow().to_pylist()
            results.note_execution(frame)
        reports = []
        for attempt in sorted(attempts, key=lambda one: one["partition"]):
            report = results.reports.attempt(epoch.id, self.node.id, attempt["partition"], attempt["attempt"])
            if report is None:
                message = f"the report of partition {attempt['partition']} did not reach the driver"
                raise TransientError(SPARK_FAILED, message, node=name)
            reports.append(report)
        given = results.reports.of(epoch.id, given_to(self._input.id))
        results.row_counts[self._input.id] = combine(given.values()).rows
        return reports

    def _count(self, results: Results, rows: NodeRows) -> int:
        """Let the executors compute all columns of the rows, and drop them."""
        with spark_errors(self._input.spec.name), results.clock.computing(self._input.id):
            frame = results.observe(self.node.id, rows.frame)
            counted = count_rows(frame)
        results.note_execution(frame)
        results.row_counts[self._input.id] = counted
        return counted


class Measured:
    """Measures the event times of the rows that a writer gets."""

    def __init__(self, column: EventTimeColumn | None) -> None:
        self._column = column
        self._times = EventTimes()

    def pass_on(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._column is None:
            return batches
        return self._measure(self._column, batches)

    def _measure(self, column: EventTimeColumn, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._times += column.measure(batch)
            yield batch

    def add_to(self, report: Report) -> Report:
        return report if self._column is None else replace(report, event_times=self._times)


@dataclass(frozen=True, slots=True)
class WriteStage:
    """Runs in an executor: writes its partition, sends the report, and returns the number of its attempt."""

    writer: Writer
    epoch: Epoch
    schema: Schema
    node_id: str
    node_name: str
    sender: Any
    event_time: EventTimeColumn | None = None
    input_id: str = ""

    def run(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(self.schema)
        input_ = RowCounter()
        input_batches = (cast_batch(batch, schema, self.node_name) for batch in input_.count(batches))
        measured = Measured(self.event_time)
        report = measured.add_to(
            self.writer.write(self.epoch, Task(partition, attempt), measured.pass_on(input_batches))
        )
        # What the sink gets is counted apart from what its writer says of it.
        counted = {(self.epoch.id, given_to(self.input_id), partition, 0): Report(input_.rows)}
        self.sender.add({(self.epoch.id, self.node_id, partition, attempt): report, **counted})
        columns = [pa.array([partition], pa.int32()), pa.array([attempt], pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, names=["partition", "attempt"])
