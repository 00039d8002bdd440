"""The results of an epoch: the rows of its nodes, their counts and sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Epoch, Json, Report
from streamling.engine.data.epoch_clock import EpochClock
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.intake import Intake
from streamling.engine.data.report_book import ReportBook
from streamling.engine.data.spark_errors import spark_errors
from streamling.engine.data.spark_rows import ResultTooLarge, collect, count_small, make_frame, stream
from streamling.engine.data.steps.stages import Stages, unpack
from streamling.errors import DATA_ERROR, PermanentError
from streamling.formats.arrow import arrow_schema, cast_batch
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import Schema
from streamling.telemetry.event_time import EventTimeColumn, EventTimes, from_row

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from streamling.engine.data.dynamic_tables import EpochTables


class EpochTooLarge(Exception):
    """The results of an epoch are more than the driver should hold. Its rows can be delivered in smaller epochs."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"'{node}': {reason}")


class Results:
    """The rows of the nodes of one epoch, computed when they are first used."""

    def __init__(
        self,
        session: SparkSession,
        epoch: Epoch,
        reports: ReportBook,
        *,
        large: bool,
        max_bytes: int | None,
        clock: EpochClock | None = None,
    ) -> None:
        """`large`: executors read the epoch. It is too large if this process has to hold more than `max_bytes` of one
        node; None for an epoch that cannot be cut any more."""
        self.session = session
        self.epoch = epoch
        self.large = large
        self.max_bytes = max_bytes
        self.reports = reports
        self.clock = clock or EpochClock()
        self.row_counts: dict[str, int] = {}
        """Row counts by node; nodes whose rows were computed as part of another query have none."""
        self.collected_bytes = 0
        """The most bytes that this process has collected of one node."""
        self._rows: dict[str, NodeRows] = {}
        self.intakes: Mapping[str, Intake] = {}
        """What the sources give to the epoch."""
        self.advance: Callable[[], object] = lambda: None
        """Called for every batch that reaches this process."""
        self.build: Callable[[PlannedNode], NodeRows] | None = None
        """Makes the rows of a node anew, from those of its inputs."""
        self.locate: Callable[[PlannedNode, PlannedNode, Collection[int]], Mapping[int, Mapping[str, Json]]] | None = (
            None
        )
        """Finds the places of rows of the second node in their source, if the first stores them as dead letters."""
        self.rows_as_read: dict[str, NodeRows] = {}
        """By source: the rows of its reader, if Spark filters them or computes its columns."""
        self._left_out: dict[tuple[str, str], Exclusions] = {}
        self.lookup_frames: dict[tuple[str, str], DataFrame] = {}
        """By query and lookup: the rows of the lookup that the query may need."""
        self._dynamic_tables: EpochTables | None = None
        self._persisted: list[DataFrame] = []
        self.uncounted: frozenset[str] = frozenset()
        """The nodes whose rows Spark has to count."""
        self._executed: list[DataFrame] = []
        self._small_frames: dict[str, DataFrame] = {}
        """By node: frames of a small epoch whose rows are to be counted."""
        self.event_columns: Mapping[str, EventTimeColumn] = {}
        """By node: the columns with event times that are measured here, not by a reader or a processor."""
        self.event_times: dict[str, EventTimes] = {}
        self._settled: set[str] = set()
        """The nodes for which Spark has counted all rows."""

    @property
    def dynamic_tables(self) -> EpochTables:
        if self._dynamic_tables is None:
            raise AssertionError("no dynamic tables")
        return self._dynamic_tables

    @dynamic_tables.setter
    def dynamic_tables(self, tables: EpochTables) -> None:
        self._dynamic_tables = tables

    def add(self, rows: NodeRows) -> None:
        self._rows[rows.node.id] = rows

    def rows(self, node: str) -> NodeRows:
        return self._rows[node]

    def has(self, node: str) -> bool:
        return node in self._rows

    def left_out(self, query: str, input_: str) -> Exclusions:
        """The rows of an input that a query cannot compute; of a source, if both are the same."""
        return self._left_out.setdefault((query, input_), Exclusions(query))

    def add_bad_rows(self, node: str, bad_rows: Sequence[BadRow], part: int = 0) -> None:
        """Add rows that a query cannot compute to the report of its node."""
        before = self.reports.of(self.epoch.id, node).get(part, Report())
        more = replace(before, rejected=before.rejected + len(bad_rows), bad_rows=(*before.bad_rows, *bad_rows))
        self.reports.add(self.epoch.id, node, more, part)

    def with_origins(
        self, node: PlannedNode, input_: PlannedNode, bad_rows: Sequence[BadRow], left_out: Exclusions
    ) -> tuple[BadRow, ...]:
        """The rows with their places in the source, as far as they can be found. `left_out`: rows of the input that the
        node did not get."""
        if self.locate is None or not bad_rows:
            return tuple(bad_rows)
        numbers = [None if bad.index is None else left_out.original(bad.index) for bad in bad_rows]
        places = self.locate(node, input_, [number for number in numbers if number is not None])
        return tuple(
            bad if number is None or number not in places else replace(bad, origin=places[number])
            for bad, number in zip(bad_rows, numbers, strict=True)
        )

    def observe(self, node: str, frame: DataFrame) -> DataFrame:
        """The frame; Spark counts its rows and measures their event times if nothing else does."""
        column = self.event_columns.get(node)
        if column is not None and self.large:
            times = frame.schema[column.name].dataType.typeName().startswith("timestamp")
            first, *more = column.aggregates(times)
            frame = frame.observe(f"event time of {node}", first, *more)
        if node not in self.uncounted:
            return frame
        if not self.large:
            self._small_frames[node] = frame
            return frame
        from pyspark.sql.functions import count, lit

        return frame.observe(f"rows of {node}", count(lit(1)).alias("rows"))

    def note_execution(self, frame: DataFrame) -> None:
        """A frame has been computed: it knows what was counted on the way."""
        if self.uncounted or (self.large and self.event_columns):
            self._executed.append(frame)

    def read_observed(self) -> None:
        """Add what Spark has counted to `row_counts`."""
        for node, frame in self._small_frames.items():
            if node not in self.row_counts:
                self.row_counts[node] = count_small(frame)
        for frame in self._executed:
            self._read_frame(frame)

    def _read_frame(self, frame: DataFrame) -> set[str]:
        """Add what Spark has counted while it computed a frame; returns the nodes."""
        observed = frame._jdf.queryExecution().observedMetrics()
        counted: set[str] = set()
        for node in self.uncounted - self._settled:
            found = observed.get(f"rows of {node}")
            if found.isDefined():
                self.row_counts[node] = int(found.get().getLong(0))
                counted.add(node)
        for node in self.event_columns.keys() - self._settled:
            found = observed.get(f"event time of {node}")
            if found.isDefined():
                self.event_times[node] = from_row(found.get())
                counted.add(node)
        return counted

    def settle(self, rows: NodeRows) -> None:
        """Let executors compute rows that they keep for several readers, before the readers do. A task of a reader that
        fails after the rows were kept takes their counts and reports with it, and the next one finds them computed; two
        readers may also compute, and count, them at the same time."""
        if self.large and not rows.in_process:
            rows.keep()
            self._settled |= self._read_frame(rows.frame)

    def persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist())
        return self._persisted[-1]

    def ensure_report(self, node: PlannedNode) -> None:
        """Compute a node that no sink reads, so that it gives its report."""
        if not self.reports.of(self.epoch.id, node.id):
            self._rows[node.id].compute()

    def release(self) -> None:
        """Drop every reference to rows of the epoch, so that Python and Java can free them."""
        for frame in self._persisted:
            frame.unpersist()
        self._rows.clear()
        self.rows_as_read.clear()
        self.lookup_frames.clear()
        self.intakes = {}
        self.build = None
        self.locate = None
        self._persisted.clear()
        self._executed.clear()
        self._small_frames.clear()
        self._dynamic_tables = None
        self.reports.forget(self.epoch.id)


class NodeRows:
    """The rows of one node in one epoch: as stages that workers run, as a Spark frame, or as a table in this process.

    Each form is made from the others when it is first needed. `shared`: several nodes read the rows, so they are
    computed once. `unrepeatable`: they come from a processor that must not be called twice.
    """

    def __init__(
        self,
        results: Results,
        node: PlannedNode,
        *,
        schema: Schema | None = None,
        stages: Stages | None = None,
        frame: DataFrame | None = None,
        table: pa.Table | None = None,
        chunk_rows: int = 0,
        shared: bool = False,
        unrepeatable: bool = False,
        counted: bool = True,
    ) -> None:
        """`counted`: they are what the node gives, not what its filter gets."""
        self.node = node
        self.schema = schema or node.schema
        """The node's own schema; for a source, the columns that other nodes read."""
        self.shared = shared
        self.unrepeatable = unrepeatable
        self._results = results
        self._stages = stages
        self._frame = frame
        self._table = table
        self._chunk_rows = chunk_rows
        self.last_batch: pa.RecordBatch | None = None
        """The last batch that a reader in this process has got."""
        self._lock = threading.Lock()
        self._counted = counted
        if table is not None:
            self._note_rows(table.num_rows)
            self._measure(table)

    @property
    def stages(self) -> Stages | None:
        """The stages that workers run to get the rows, if another stage may follow in the same task."""
        return None if self.shared or self.unrepeatable or self._frame is not None else self._stages

    @property
    def frame(self) -> DataFrame:
        with self._lock:
            if self._frame is None:
                self._frame = self._make_frame()
            return self._frame

    def _make_frame(self) -> DataFrame:
        results, schema = self._results, self.schema
        if self._table is not None:
            return make_frame(results.session, schema, self._table, self._chunk_rows)
        if self._stages is None:
            raise AssertionError(self.node)
        frame = self._stages.frame(results.session, schema)
        return results.persist(frame) if self.shared or self.unrepeatable else frame

    def compute(self) -> None:
        """Let the executors compute the rows now."""
        with spark_errors(self.node.spec.name), self._results.clock.computing(self.node.id):
            self.frame.write.format("noop").mode("overwrite").save()
            self._results.note_execution(self.frame)

    def keep(self) -> None:
        """The same for rows that executors keep: it does not read them."""
        with spark_errors(self.node.spec.name), self._results.clock.computing(self.node.id):
            # One stage: `count` has a second one, behind a shuffle.
            self._note_rows(self.frame.select()._jdf.queryExecution().toRdd().count())

    @property
    def in_process(self) -> bool:
        return self._table is not None

    @property
    def chunk_rows(self) -> int:
        """The rows of a partition of the frame, if it is made of a table."""
        return self._chunk_rows

    def batches(self, *, limited: bool = True) -> Iterator[pa.RecordBatch]:
        """The rows in this process, in order. Raises EpochTooLarge, unless they need not be held: `limited=False`."""
        name, schema = self.node.spec.name, arrow_schema(self.schema)
        rows = size = 0
        for batch in self._raw_batches():
            rows += batch.num_rows
            size += batch.nbytes
            if limited:
                self._check(size)
            self._results.advance()
            self.last_batch = cast_batch(batch, schema, name)
            yield self.last_batch
        self._note_rows(rows)
        self._results.collected_bytes = max(self._results.collected_bytes, size)

    def _raw_batches(self) -> Iterator[pa.RecordBatch]:
        if self._table is None and self._results.large:
            stages = self.stages
            frame = self.frame if stages is None else stages.packed(self.schema)
            with spark_errors(self.node.spec.name):
                batches = self._check_result(lambda: stream(frame))
                rows = batches if stages is None else unpack(batches, self.schema)
                yield from self._results.clock.while_computed(self.node.id, rows)
            self._results.note_execution(frame)
            return
        yield from self.table().to_batches()

    def table(self) -> pa.Table:
        """All rows of a small epoch, computed once for all readers."""
        frame = self.frame if self._table is None else None
        with self._lock:
            if self._table is None and frame is not None:
                with spark_errors(self.node.spec.name), self._results.clock.computing(self.node.id):
                    (self._table,) = self._check_result(lambda: iter([collect(frame)]))
                self._results.note_execution(frame)
                self._note_rows(self._table.num_rows)
                self._measure(self._table)
            return self._table

    def _measure(self, table: pa.Table) -> None:
        column = self._results.event_columns.get(self.node.id)
        if column is not None and self._counted and not self._results.large and column.name in table.column_names:
            self._results.event_times[self.node.id] = column.measure(table)

    def _note_rows(self, rows: int) -> None:
        if self._counted:
            self._results.row_counts[self.node.id] = rows

    def materialize(self) -> None:
        """Compute a small epoch's rows now, so that every reader uses the same ones."""
        if self._table is None:
            self.table()
            with self._lock:
                self._frame = None

    def _check_result(self, items: Callable[[], Iterator[pa.Table]]) -> Iterator[pa.Table]:
        """Pass on items; raises EpochTooLarge, or PermanentError if the epoch cannot be cut, if Spark has too many."""
        try:
            yield from items()
        except ResultTooLarge:
            self._check(None)
            raise PermanentError(
                DATA_ERROR,
                "the result of a few rows is larger than spark.driver.maxResultSize",
                node=self.node.spec.name,
                hint="raise spark.driver.maxResultSize and spark.driver.memory, or make the rows smaller",
            ) from None

    def _check(self, size: int | None) -> None:
        """Raises EpochTooLarge. `size` None: more than Spark returns."""
        limit = self._results.max_bytes
        if limit is not None and (size is None or size > limit):
            raise EpochTooLarge(self.node.spec.name, f"its rows are more than {limit >> 20} MB")
