"""The read step: rows that the driver has read become a frame; the parts of a large epoch are read by workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streamling.connector import BadRow, Json, Reader, Source
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.intake import Intake
from streamling.engine.data.reading import BadRowFilter, read_event_time
from streamling.engine.data.report_book import SELECTION, ReportBook
from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.row_search import RowSearch
from streamling.engine.data.spark_rows import make_frame, make_table
from streamling.engine.data.steps.left_out import remaining_frame
from streamling.engine.data.steps.query_input import run_query
from streamling.engine.data.steps.stages import Stages
from streamling.formats.arrow import arrow_schema
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import Schema
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.event_time import EventTimeColumn
from streamling.telemetry.stopwatch import Stopwatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class ReadStep:
    def __init__(self, node: PlannedNode, source: Source, on_error: OnError, reports: ReportBook) -> None:
        self.node = node
        self._source = source
        self.reader = source.reader()
        self._on_error = on_error
        self._reports = reports
        self.event_time = read_event_time(node.spec, source)
        """Measured on what the reader gives, before the filter."""
        self.read_unfiltered = False
        """Whether a dynamic table is filled with rows that the source's filter drops."""

    def rows(self, results: Results, intake: Intake | None, *, shared: bool) -> NodeRows:
        """`intake` is None for a source that gives nothing to this epoch."""
        if not self.selects:
            return self._read(results, intake, shared=shared)
        read = self._read(results, intake, shared=self.read_unfiltered)
        if self.read_unfiltered:
            results.settle(read)
        results.rows_as_read[self.node.id] = read
        frame = self._select(results, remaining_frame(results, read, self._left_out(results)))
        frame = results.observe(self.node.id, frame)
        if shared and intake is not None and intake.large:
            frame = results.persist(frame)
        return NodeRows(results, self.node, schema=self._selected, frame=frame, shared=shared)

    def unfiltered_rows(self, results: Results) -> NodeRows:
        """The rows without the filter of the source."""
        read, select = results.rows_as_read[self.node.id], self._source.select
        if select is None or select.condition is None:
            return results.rows(self.node.id)
        frame = self._select(results, remaining_frame(results, read, self._left_out(results)), filtered=False)
        return NodeRows(results, self.node, schema=self._selected, frame=frame, counted=False)

    @property
    def _selected(self) -> Schema:
        """The columns that Spark selects: those that other nodes read."""
        select = self._source.select
        names = {name for _, name in select.columns} if select is not None else set(self.node.schema.names)
        return Schema(tuple(field for field in self.node.schema if field.name in names))

    @property
    def filters(self) -> bool:
        """Whether Spark filters the rows of the reader."""
        return self._source.select is not None and self._source.select.condition is not None

    @property
    def selects(self) -> bool:
        """Whether Spark filters the rows of the reader, or computes the columns."""
        return self._source.select is not None

    def leave_out_bad_rows(self, results: Results, parts: Sequence[Json]) -> bool:
        """Find the rows that cannot be filtered, so that `rows` leaves them out. False: there are none."""
        read, left_out = results.rows_as_read[self.node.id], self._left_out(results)
        search = RowSearch(results.session, self.node.spec.name, partial(self._select_from, results))
        bad_rows = list(search.bad_rows(left_out.filter(read.batches(limited=False))))
        if not bad_rows:
            return False
        numbers = left_out.originals([bad.index or 0 for bad in bad_rows])
        left_out.add(bad_rows)
        results.add_bad_rows(self.node.id, self._with_payloads(parts, numbers, bad_rows), SELECTION)
        return True

    def _with_payloads(self, parts: Sequence[Json], numbers: Sequence[int], bad_rows: list[BadRow]) -> list[BadRow]:
        """The rows as the reader would reject them, with place and payload, if the source can say so."""
        locator = self._source.locator()
        rejects = locator.rejects(parts, numbers) if locator is not None else {}
        return [
            replace(rejects[number], reason=bad.reason, message=bad.message) if number in rejects else bad
            for number, bad in zip(numbers, bad_rows, strict=True)
        ]

    def _left_out(self, results: Results) -> Exclusions:
        return results.left_out(self.node.id, self.node.id)

    def _read(self, results: Results, intake: Intake | None, *, shared: bool) -> NodeRows:
        columns = self._source.columns
        if intake is not None and intake.large:
            stages = self._stages(results, intake.parts)
            return NodeRows(results, self.node, schema=columns, stages=stages, shared=shared, counted=not self.selects)
        batches = (intake.batches or ()) if intake is not None else ()
        table, chunk_rows = make_table(columns, batches), intake.chunk_rows if intake is not None else 0
        return NodeRows(
            results,
            self.node,
            schema=columns,
            table=table,
            chunk_rows=chunk_rows,
            shared=shared,
            counted=not self.selects,
        )

    def _stages(self, results: Results, parts: list[Json]) -> Stages:
        """One Spark partition per part, in order; fewer if the source limits its readers."""
        sender = self._reports.sender(results.session.sparkContext)
        stage = ReadStage(
            self.reader,
            parts,
            self._source.columns,
            self.node.id,
            self._on_error,
            results.epoch.id,
            sender,
            self.event_time,
        )
        tasks = min(self._source.capabilities.max_readers or len(parts), len(parts))
        return Stages(results.session.range(0, len(parts), 1, tasks), (stage,))

    def _select_from(self, results: Results, table: pa.Table) -> DataFrame:
        return self._select(results, make_frame(results.session, self._source.columns, table))

    def _select(self, results: Results, frame: DataFrame, *, filtered: bool = True) -> DataFrame:
        select = self._source.select
        if select is None:
            return frame
        if not filtered:
            select = replace(select, condition=None)
        view = f"{self.node.view}_read"
        frame.createOrReplaceTempView(view)
        return run_query(results.session, select.query(view), select.parameters, results.epoch)


@dataclass(frozen=True, slots=True)
class ReadStage:
    """Runs in an executor: the value n in the input means "read part n"."""

    reader: Reader
    parts: list[Json]
    columns: Schema
    node: str
    on_error: OnError
    epoch_id: str
    sender: Any
    event_time: EventTimeColumn | None = None

    def run(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.columns)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                rows = BadRowFilter(self.node, schema, self.on_error, event_time=self.event_time)
                stopwatch = Stopwatch()
                yield from stopwatch.output(rows.batches(self.reader.read(self.parts[index])))
                report = replace(rows.report, compute_ms=stopwatch.milliseconds)
                self.sender.add({(self.epoch_id, self.node, index, 0): report})
