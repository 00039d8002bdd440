"""The data plane of one epoch: slices in, one result per sink out, Spark in between.

Small epochs: rows in hand go to Spark as Arrow, results come back as Arrow and are written in this process; no
Python worker is involved. Large epochs: workers read the slices (`mapInArrow`) and, where a sink can, write them
there too. Readers, writers, queries and order are the same in both. Transforms that are no queries run in this
process, once per epoch, between two steps of Spark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from streamling.engine.bad_rows import BadRows, Refused
from streamling.engine.part_reports import PartReport, Sorted, counts_of, open_reports
from streamling.engine.readahead import Taken
from streamling.engine.spark_errors import crossing, spark_errors, spark_failure
from streamling.errors import DATA_ERROR, SHUFFLE_REFUSED, BugError, PermanentError
from streamling.formats.arrow import arrow_schema, conform
from streamling.plan.nodes import PlannedNode
from streamling.plan.pipeline import Plan
from streamling.plan.sql.epoch import EPOCH_NOW, EPOCH_SEED
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.sql.values import identifier
from streamling.plan.types import Schema
from streamling.plugin.abilities import LimitsReaders
from streamling.plugin.contract import Ack, BadRow, Epoch, Json, Reader, Source, Task, Transform, Writer
from streamling.spec.options import OnError
from streamling.spec.pipeline import Role

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


class Dataflow:
    """Builds the frames of epochs. Holds what does not change between them."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        sources: Mapping[str, Source],
        transforms: Mapping[str, Transform],
        bad_rows: BadRows,
    ) -> None:
        self._session, self._plan, self._sources, self._transforms = session, plan, sources, transforms
        self._bad_rows = bad_rows
        self._readers = {ref: source.reader() for ref, source in sources.items()}
        self._most_readers = {ref: s.readers if isinstance(s, LimitsReaders) else None for ref, s in sources.items()}
        self._reports: Any = None
        self._views = threading.RLock()
        self._checked: set[str] = set()

    def frames(self, epoch: Epoch, taken: Mapping[str, Taken], *, wanted: Sequence[PlannedNode]) -> Frames:
        """Frames of all nodes that the wanted sinks need, analysed but not computed; transforms have run."""
        # A transform that keeps its bad rows runs in any case: they may be all that is missing of an epoch.
        keeping = [n for n in self._plan.transforms if n.ref in self._transforms and self._bad_rows.keeps(n.ref)]
        return self._frames(epoch, taken, self._upstream([*wanted, *keeping]), {})

    def _frames(
        self, epoch: Epoch, taken: Mapping[str, Taken], needed: set[str], given: Mapping[str, Batches]
    ) -> Frames:
        """`given` are the rows of transforms that have run for this epoch, or of a piece of it."""
        large = any(t.batches is None for t in taken.values())
        frames = Frames(large, lambda ref: self._pieces(epoch, taken, frames, ref))
        nodes = [n for n in self._plan.nodes if n.ref in needed and n.spec.role is not Role.SINK]
        # Two sinks may need pieces at once, and views have one name each; analysed frames need them no more.
        with self._views, frames.released_on_error():
            for node in nodes:
                with spark_errors(node.spec.name):
                    if node.spec.role is Role.SOURCE:
                        frame = self._source_frame(node, epoch, taken.get(node.ref))
                    elif node.query is not None:
                        frame = self._query_frame(node, epoch)
                    else:
                        frame = self._transform_frame(node, epoch, frames, given.get(node.ref))
                    frames.add(node, self._share(node, frame, frames, needed))
        return frames

    def _transform_frame(self, node: PlannedNode, epoch: Epoch, frames: Frames, given: Batches | None) -> DataFrame:
        if given is None:
            sorted_ = Sorted(node.spec.name, self._bad_rows.policy(node.ref), most=None)
            schema = arrow_schema(node.schema)
            processed = self._transforms[node.ref].process(epoch, frames.batches(node.inputs[0]))
            given = tuple(conform(batch, schema, node.spec.name) for batch in sorted_.rows(processed))
            frames.transformed[node.ref] = sorted_.report
        table = _table(node.schema, given)
        frames.keep_table(node, table)
        return self._session.createDataFrame(table, _spark_schema(node.schema))

    def _pieces(self, epoch: Epoch, taken: Mapping[str, Taken], whole: Frames, ref: str) -> Iterator[Frames]:
        """The first and the second half of what was taken, for one node whose result is too much at once.

        Transforms upstream have run: what they gave is cut, not what they got.
        """
        node = self._plan.node(ref)
        given = {r: whole.rows_of(r) for r in self._upstream([node]) if r in self._transforms}
        needed = self._upstream([node], ends=given)
        in_hand = {source: self._in_hand(source, t) for source, t in taken.items() if source in needed}
        if sum(batch.num_rows for batches in (*in_hand.values(), *given.values()) for batch in batches) < 2:
            raise PermanentError(
                DATA_ERROR,
                "what comes of a single row is larger than spark.driver.maxResultSize",
                node=node.spec.name,
                hint="raise spark.driver.maxResultSize and spark.driver.memory, or make the row smaller",
            )
        for half in (0, 1):
            piece = {source: Taken(taken[source].slices, _half(batches, half)) for source, batches in in_hand.items()}
            yield self._frames(epoch, piece, needed, {r: _half(batches, half) for r, batches in given.items()})

    def _in_hand(self, ref: str, taken: Taken) -> tuple[pa.RecordBatch, ...]:
        if taken.batches is not None:
            return taken.batches
        schema, reader = arrow_schema(self._sources[ref].columns), self._readers[ref]
        parts = [part for s in taken.slices for part in s.parts]
        sorted_ = Sorted(ref, self._bad_rows.policy(ref))
        return tuple(conform(batch, schema, ref) for part in parts for batch in sorted_.rows(reader.read(part)))

    def _upstream(self, nodes: Iterable[PlannedNode], ends: Collection[str] = ()) -> set[str]:
        """The nodes and all they read, directly or not; nothing that only `ends` read."""
        needed: set[str] = set()
        stack = [node.ref for node in nodes]
        while stack:
            ref = stack.pop()
            if ref not in needed:
                needed.add(ref)
                stack.extend(() if ref in ends else self._plan.node(ref).inputs)
        return needed

    def readings(self, epoch: Epoch, taken: Mapping[str, Taken]) -> Mapping[str, Reading]:
        """What was read for an epoch that is flushed, source by source."""
        return {ref: self._reading(epoch, ref, t) for ref, t in taken.items()}

    def _reading(self, epoch: Epoch, ref: str, taken: Taken) -> Reading:
        parts = [part for s in taken.slices for part in s.parts]
        if taken.batches is not None:
            reports: list[PartReport | None] = [taken.report]
        else:
            known = self._reports.value if self._reports is not None else {}
            reports = [known.pop((epoch.id, ref, index), None) for index in range(len(parts))]
        whole = all(report is not None and report.complete for report in reports)
        found = [report for report in reports if report is not None]
        again = None if whole else lambda: _bad_rows_of(self._readers[ref], parts)
        counted = len(found) == len(reports)
        rows = sum(report.rows for report in found) if counted else sum(s.rows for s in taken.slices)
        bad = tuple(bad for report in found for bad in report.bad)
        return Reading(rows, Refused(sum(report.refused for report in found), bad, again), counts_of(found))

    def _source_frame(self, node: PlannedNode, epoch: Epoch, taken: Taken | None) -> DataFrame:
        source = self._sources[node.ref]
        if taken is not None and taken.batches is None:
            frame = self._read_frame(node, source, [p for s in taken.slices for p in s.parts], epoch)
        else:
            table = _table(source.columns, (taken.batches or ()) if taken else ())
            frame = self._session.createDataFrame(table, _spark_schema(source.columns))
        if source.select is None:
            return frame
        view = f"{node.view}_read"
        frame.createOrReplaceTempView(view)
        return self._sql(source.select.query(view), source.select.parameters, epoch)

    def _read_frame(self, node: PlannedNode, source: Source, parts: list[Json], epoch: Epoch) -> DataFrame:
        """One Spark partition per part, in order; or fewer, each with several parts."""
        if self._reports is None:
            self._reports = open_reports(self._session.sparkContext)
        policy = self._bad_rows.policy(node.ref)
        task = ReadTask(self._readers[node.ref], parts, source.columns, node.ref, policy, epoch.id, self._reports)
        # Spark wants a plain function.
        read: BatchTask = lambda rows: task(rows)  # noqa: E731
        tasks = min(self._most_readers[node.ref] or len(parts), len(parts))
        return self._session.range(0, len(parts), 1, tasks).mapInArrow(read, _spark_schema(source.columns))

    def _query_frame(self, node: PlannedNode, epoch: Epoch) -> DataFrame:
        if node.query is None:
            raise AssertionError(node)
        frame = self._sql(node.query.text, node.query.parameters, epoch)
        if node.ref not in self._checked:
            self._check_narrow(node, frame)
            self._checked.add(node.ref)
        return frame

    def _sql(self, text: str, parameters: frozenset[str], epoch: Epoch) -> DataFrame:
        now = _EPOCH_START + timedelta(microseconds=epoch.now_us)
        values = {EPOCH_NOW: now, EPOCH_SEED: epoch.seed}
        return self._session.sql(text, args={name: values[name] for name in sorted(parameters)} or None)

    def _share(self, node: PlannedNode, frame: DataFrame, frames: Frames, needed: set[str]) -> DataFrame:
        """Make the node readable for others; computed once if several read it."""
        readers = [n for n in self._plan.consumers(node.ref) if n.ref in needed]
        queries = [n for n in readers if n.spec.role is not Role.SINK]
        if len(readers) > 1 and queries and node.spec.role is not Role.SOURCE and not frames.large:
            table = collected(frame)
            if table is not None:
                frames.keep_table(node, table)
                frame = self._session.createDataFrame(table, _spark_schema(node.schema))
        elif len(readers) > 1 and frames.large:
            frame = frames.persist(frame)
        if queries:
            frame.createOrReplaceTempView(node.view)
        return frame

    def _check_narrow(self, node: PlannedNode, frame: DataFrame) -> None:
        """Rows keep their order only as long as none moves to another partition."""
        physical = frame._jdf.queryExecution().executedPlan().toString()
        if "Exchange" in physical:
            raise BugError(SHUFFLE_REFUSED, f"the query is planned with a shuffle:\n{physical}", node=node.spec.name)


class Frames:
    """The analysed nodes of one epoch."""

    def __init__(self, large: bool, pieces: Callable[[str], Iterator[Frames]]) -> None:
        self.large, self._pieces = large, pieces
        self._frames: dict[str, DataFrame] = {}
        self._nodes: dict[str, PlannedNode] = {}
        self._tables: dict[str, pa.Table | None] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._persisted: list[DataFrame] = []
        self.transformed: dict[str, PartReport] = {}
        """What transforms have given and refused, by node."""
        self.counted: dict[str, int] = {}
        """The rows of the nodes whose result was seen; the others were computed in passing."""

    def add(self, node: PlannedNode, frame: DataFrame) -> None:
        self._frames[node.ref], self._nodes[node.ref] = frame, node
        self._locks[node.ref] = threading.Lock()

    def keep_table(self, node: PlannedNode, table: pa.Table) -> None:
        self._tables[node.ref], self.counted[node.ref] = table, table.num_rows

    def persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist())
        return self._persisted[-1]

    def rows_of(self, ref: str) -> Batches:
        """The rows of a transform that has run."""
        table = self._tables[ref]
        return tuple(table.to_batches()) if table is not None else ()

    def batches(self, ref: str) -> Iterator[pa.RecordBatch]:
        """The rows of a node in this process, in order; computed once however many sinks ask.

        A result that Spark refuses to hand over at once is computed piece by piece.
        """
        schema = arrow_schema(self._nodes[ref].schema)
        with self._locks[ref]:
            if ref not in self._tables:
                with spark_errors(self._nodes[ref].spec.name):
                    self._tables[ref] = collected(self._frames[ref])
            table = self._tables[ref]
        if table is None:
            rows = 0
            for piece in self._pieces(ref):
                for batch in piece.batches(ref):
                    rows += batch.num_rows
                    yield batch
            self.counted[ref] = rows
            return
        self.counted[ref] = table.num_rows
        for batch in table.to_batches():
            yield conform(batch, schema, self._nodes[ref].spec.name)

    def write(self, ref: str, writer: Writer, epoch: Epoch) -> list[Ack]:
        """Let the executors write a node; returns the acks of the attempts that counted."""
        node = self._nodes[ref]
        with spark_errors(node.spec.name):
            table = self._frames[ref].mapInArrow(_write_task(writer, epoch, node.schema, ref), "ack STRING").toArrow()
        acks = [json.loads(text) for text in table.column("ack").to_pylist()]
        self.counted[ref] = sum(ack["rows"] for ack in acks)
        return [Ack(ack["rows"], ack["detail"]) for ack in acks]

    def count(self, ref: str) -> int:
        """Let the executors compute a node, every column of it, and drop the rows."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        seen = Observation()
        with spark_errors(self._nodes[ref].spec.name):
            counted = self._frames[ref].observe(seen, count(lit(1)).alias("rows"))
            counted.write.format("noop").mode("overwrite").save()
            self.counted[ref] = int(seen.get["rows"])
        return self.counted[ref]

    def release(self) -> None:
        for frame in self._persisted:
            frame.unpersist()

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.release()
            raise


def collected(frame: DataFrame) -> pa.Table | None:
    """The rows of a frame, or None if they are more bytes than `spark.driver.maxResultSize` allows."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return frame.toArrow()
    except (Py4JJavaError, PySparkException) as error:
        failure = spark_failure(error)
        if failure and failure.result_too_large:
            return None
        raise


def _half(batches: Sequence[pa.RecordBatch], which: int) -> tuple[pa.RecordBatch, ...]:
    rows = sum(batch.num_rows for batch in batches)
    start, end = ((0, rows // 2), (rows // 2, rows))[which]
    taken, passed = [], 0
    for batch in batches:
        first, last = max(start - passed, 0), min(end - passed, batch.num_rows)
        if first < last:
            taken.append(batch.slice(first, last - first))
        passed += batch.num_rows
    return tuple(taken)


@cache
def _spark_schema(schema: Schema) -> StructType:
    """Explicit, because Spark would guess: an Arrow timestamp without zone becomes an instant otherwise.

    Made once per schema, not per epoch: Spark's own parser reads it.
    """
    from pyspark.sql.types import StructType

    return StructType.fromDDL(", ".join(f"{identifier(f.name)} {spark_type(f.type)}" for f in schema))


def _table(schema: Schema, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    import pyarrow as pa

    if not batches:  # a chunk of no rows: Spark cannot take a nested column that has no chunk at all
        return arrow_schema(schema).empty_table()
    return pa.Table.from_batches(list(batches), arrow_schema(schema))


BatchTask = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
Batches = tuple["pa.RecordBatch", ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source gave to an epoch; where nobody has counted the rows, as many as it had offered."""

    rows: int
    refused: Refused
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Runs in an executor: row n of the input says "read part n"."""

    reader: Reader
    parts: list[Json]
    columns: Schema
    node: str
    on_error: OnError
    epoch_id: str
    reports: Any

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.columns)
        for row in rows:
            for index in row.column(0).to_pylist():
                sorted_ = Sorted(self.node, self.on_error)
                with crossing():
                    for batch in sorted_.rows(self.reader.read(self.parts[index])):
                        yield conform(batch, schema, self.node)
                self.reports.add({(self.epoch_id, self.node, index): sorted_.report})


def _bad_rows_of(reader: Reader, parts: Sequence[Json]) -> Iterator[BadRow]:
    """Read parts again for their bad rows only."""
    return (item for part in parts for item in reader.read(part) if isinstance(item, BadRow))


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Runs in an executor: writes its partition and answers with one ack."""

    writer: Writer
    epoch: Epoch
    schema: Schema
    node: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = Task(context.partitionId(), context.taskAttemptId()) if context else Task(0, 0)
        schema = arrow_schema(self.schema)
        with crossing():
            ack = self.writer.write(self.epoch, task, (conform(batch, schema, self.node) for batch in batches))
        text = json.dumps({"rows": ack.rows, "detail": ack.detail})
        yield pa.RecordBatch.from_pydict({"ack": [text]})


def _write_task(writer: Writer, epoch: Epoch, schema: Schema, node: str) -> BatchTask:
    task = WriteTask(writer, epoch, schema, node)
    return lambda batches: task(batches)
