"""In-memory stand-ins for what the engine drives: a source, a sink with a ledger, Spark's side of an epoch.

`Rig` puts them together with the real loop, read-ahead, ledger and capacity, so that a run can be killed and
started again over one state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamling.connector import (
    Applied,
    BatchPolicy,
    Epoch,
    Guarantee,
    Json,
    Offer,
    Report,
    Room,
    Sink,
    SinkCapabilities,
    SinkContext,
    Slice,
    Source,
    Task,
    kinds,
)
from streamling.engine.data.capacity import Capacity
from streamling.engine.data.epoch_clock import EpochClock
from streamling.engine.data.intake import Intake
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.process.stop import StopRequest
from streamling.engine.process.workers import PythonWorkers
from streamling.engine.protocol.bad_rows import BadRows, Rejects
from streamling.engine.protocol.context import RunContext
from streamling.engine.protocol.delivery import Flushed, Outlet
from streamling.engine.protocol.epoch_metrics import EpochMetrics
from streamling.engine.protocol.loop import EpochLoop
from streamling.engine.protocol.pending import Journal
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state import MemoryState, StateStore, generation
from streamling.engine.protocol.steps import EpochSteps
from streamling.errors import STATE_MOVED, Fenced
from streamling.letters.store import letter_stores
from streamling.plan.pipeline import Plan, make_plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import INT64, Field, Schema
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings, blocks
from streamling.telemetry.meters import RowCounts
from streamling.telemetry.metrics import Metrics


class Crash(BaseException):
    """Ends a run like a kill: nothing handles it."""


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for another thread."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


class NumberReader:
    def read(self, part: Json) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, list)
        yield pa.RecordBatch.from_arrays([pa.array(range(part[0], part[1]), pa.int64())], names=["n"])


class NumberSource(Source):
    """Gives the numbers below `there`, in offers of at most `chunk`, one slice for each of its keys."""

    columns = Schema((Field("n", INT64, nullable=False),))
    select = None

    def __init__(
        self, node: str = "numbers", *, there: int, chunk: int = 1000, ends: bool = True, keys: Sequence[str] = ("",)
    ) -> None:
        self.there, self.chunk, self.ends = there, chunk, ends
        self._node, self.keys = node, [f"{node}:{key}" for key in keys]
        self.opened: list[dict[str, Json]] = []
        self.rooms: list[Room] = []
        self.told: list[Slice] = []
        self.before_offer: Callable[[], None] = lambda: None

    def open(self, positions: Mapping[str, Json]) -> None:
        self.opened.append(dict(positions))
        self._at: dict[str, Json] = {key: positions.get(key) for key in self.keys}

    def next(self, key: str) -> int:
        at = self._at[key]
        return at["next"] if isinstance(at, dict) else 0

    def offer(self, room: Room) -> Offer | None:
        self.rooms.append(room)
        self.before_offer()
        slices, left = list[Slice](), room.rows
        keys = [key for key in self.keys if self.next(key) < self.there]
        for after, key in zip(reversed(range(len(keys))), keys, strict=True):
            first = self.next(key)
            end = min(first + self.chunk, self.there, first + math.ceil(left / (after + 1)))
            if end > first:
                slices.append(Slice(self._node, key, self._at[key], {"next": end}, ([first, end],), end - first))
                self._at[key] = {"next": end}
                left -= end - first
        return Offer(tuple(slices)) if slices else None

    @property
    def bounded(self) -> bool:
        return self.ends

    @property
    def ended(self) -> bool:
        return self.ends and all(self.next(key) >= self.there for key in self.keys)

    def reader(self) -> NumberReader:
        return NumberReader()

    def committed(self, slices: Sequence[Slice]) -> None:
        self.told.extend(slices)

    def close(self) -> None:
        return


class LedgerSink(Sink):
    """Exactly once like real sinks: its ledger has the position after the last rows it committed."""

    def __init__(self, guarantee: Guarantee = Guarantee.EXACTLY_ONCE, batch: BatchPolicy | None = None) -> None:
        self.capabilities = SinkCapabilities(guarantee=guarantee, batch=batch)
        self.positions: dict[str, Json] = {}
        self.rows: list[int] = []
        self.epochs: list[Epoch] = []
        self.aborted: list[Epoch] = []
        self.abandoned: set[str] = set()
        self.before_commit: Callable[[Epoch], None] = lambda epoch: None
        self.before_answer: Callable[[], None] = lambda: None

    def open(self, context: SinkContext) -> None:
        return

    def applied(self, slices: Sequence[Slice]) -> Applied:
        self.before_answer()
        if self.capabilities.guarantee is Guarantee.AT_LEAST_ONCE:
            return Applied.UNKNOWN
        if all(self.positions.get(s.key) == s.end for s in slices):
            return Applied.YES
        return Applied.NO if all(self.positions.get(s.key) == s.start for s in slices) else Applied.UNKNOWN

    def abandon(self, epoch: Epoch) -> Applied:
        standing = self.applied(epoch.slices)
        if standing is Applied.NO:
            self.abandoned.add(epoch.id)
        return standing

    def writer(self) -> LedgerSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        self._staged = [n for batch in batches for n in batch.column(0).to_pylist()]
        return Report(len(self._staged))

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        self.before_commit(epoch)
        if self.capabilities.guarantee is Guarantee.EXACTLY_ONCE:
            standing = self.applied(epoch.slices)
            if standing is Applied.YES:
                return 0
            if standing is Applied.UNKNOWN or epoch.id in self.abandoned:
                raise Fenced(STATE_MOVED, "another process has taken over these rows", node="sink")
        self.positions |= {s.key: s.end for s in epoch.slices}
        self.rows += self._staged
        self.epochs.append(epoch)
        return len(self._staged)

    def abort(self, epoch: Epoch) -> None:
        self.aborted.append(epoch)

    def close(self) -> None:
        return


@dataclass
class NumberResults:
    epoch: Epoch
    batches: list[pa.RecordBatch]
    released: bool = False
    row_counts: dict[str, int] = field(default_factory=dict)
    collected_bytes: int = 0

    def release(self) -> None:
        self.released = True


@dataclass
class NumberDataflow:
    """What Spark would do for a pipeline that changes nothing."""

    calls: list[tuple[Epoch, list[str]]] = field(default_factory=list)
    made: list[NumberResults] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    """The byte limit of each call."""
    intakes: list[Mapping[str, Intake]] = field(default_factory=list)
    before_compute: Callable[[Epoch, int | None], None] = lambda epoch, max_bytes: None
    before_recount: Callable[[], None] = lambda: None
    sources: Mapping[str, Source] = field(default_factory=dict)

    def compute(
        self,
        epoch: Epoch,
        intakes: Mapping[str, Intake],
        *,
        wanted: Sequence[PlannedNode],
        max_bytes: int | None,
        clock: EpochClock,
    ) -> NumberResults:
        self.calls.append((epoch, [node.ref for node in wanted]))
        self.limits.append(max_bytes)
        self.intakes.append(intakes)
        self.before_compute(epoch, max_bytes)
        batches: list[pa.RecordBatch] = []
        for intake in intakes.values():
            read = (
                [b for p in intake.parts for b in NumberReader().read(p)] if intake.batches is None else intake.batches
            )
            batches += read
        self.made.append(NumberResults(epoch, batches))
        return self.made[-1]

    def rejects(self, results: NumberResults, intakes: Mapping[str, Intake]) -> dict[str, Rejects]:
        return {ref: Rejects(intake.report) for ref, intake in intakes.items()}

    def row_counts(
        self, results: NumberResults, rejects: Mapping[str, Rejects], sinks: Mapping[str, int]
    ) -> dict[str, RowCounts]:
        return {ref: RowCounts(rows_out=one.report.rows) for ref, one in rejects.items()}

    def event_times(self, results: NumberResults, rejects: Mapping[str, Rejects]) -> dict[str, Any]:
        return {}

    def count(self, reports: Mapping[str, Report]) -> None:
        for ref, report in reports.items():
            if report.counts and ref in self.sources:
                self.sources[ref].count(report.counts)

    recountable: bool = True

    def can_recount(self, sink: PlannedNode, wanted: Sequence[PlannedNode]) -> bool:
        return self.recountable

    def recount(self, node: PlannedNode, results: NumberResults) -> Report:
        self.before_recount()
        return Report(sum(batch.num_rows for batch in results.batches))

    def read_unread(self, results: NumberResults) -> None:
        """Sources of numbers are read in this process."""

    def compute_unread(self, results: NumberResults, wanted: Sequence[PlannedNode]) -> None:
        return

    fills_after = False

    def additions(self, results: NumberResults) -> dict[str, Any]:
        return {}

    def add_values(self, additions: Mapping[str, Any]) -> None:
        return


class StubWorkers(PythonWorkers):
    """Workers without a session: `start` calls what it was given."""

    def __init__(self, start: Callable[[], object]) -> None:
        self._start = start

    def start(self) -> None:
        self._start()


class InOrder:
    """Delivery without threads: one sink after the other."""

    def flush(self, results: NumberResults, outlets: Sequence[Outlet]) -> None:
        for outlet in outlets:
            report = outlet.sink.writer().write(results.epoch, Task(0, 0), results.batches)
            written = outlet.sink.commit(results.epoch, [report])
            outlet.note_commit(results.epoch, Flushed(results.epoch.rows, report.rows, written))


def plan_of(sources: Iterable[str], sinks: Iterable[str], column: str = "id", more: str = "") -> Plan:
    """A plan whose nodes have these names; `column` changes what its rows would be, `more` are fields of sources."""
    names = list(sources)
    text = "sources:\n" + "".join(f"  {s}: {{type: generator, columns: {{n: {column}}}{more}}}\n" for s in names)
    if len(names) > 1:
        union = " UNION ALL ".join(f"SELECT n FROM {s}" for s in names)
        text += f"transforms:\n  all: {{type: sql, primary_key: n, sql: {union}}}\n"
    input_ = "all" if len(names) > 1 else names[0]
    text += "sinks:\n" + "".join(f"  {s}: {{type: blackhole, from: {input_}}}\n" for s in sinks)
    return make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))


@dataclass
class Rig:
    """A pipeline of doubles. Every `loop()` is another process over the same state and sinks."""

    sources: Mapping[str, NumberSource]
    sinks: Mapping[str, LedgerSink]
    store: StateStore = field(default_factory=MemoryState)
    column: str = "id"
    more: str = ""
    limit: int | None = None
    driver_rows: int = 10
    takeover_ms: int = 50
    same_rows: bool = False
    stop: StopRequest = field(default_factory=StopRequest)
    dataflow: NumberDataflow = field(default_factory=NumberDataflow)
    runs: list[Progress] = field(default_factory=list)
    """The progress of every process."""
    metrics: Metrics | None = None
    """Of all processes."""

    def counted(self, node: str) -> list[int]:
        """The rows that each process has counted as written, or as given by a source."""
        return [progress.meter(node).rows_out or 0 for progress in self.runs]

    def loop(self) -> EpochLoop:
        epoch = blocks.EpochSettings(driver_rows=self.driver_rows, takeover_ms=self.takeover_ms)
        settings = Settings(application_id="app", record_batch_interval_ms=1, epoch=epoch)
        plan = plan_of(self.sources, self.sinks, self.column, self.more)
        outlets = [Outlet(node, self.sinks[node.ref], self.limit) for node in plan.sinks]
        sources = len(self.sources)
        capacity = Capacity(
            settings,
            collects=True,
            limit=self.limit,
            sources=sources,
            start_workers=StubWorkers(lambda: None).start_in_background,
            count_cores=lambda: 2,
        )
        progress = Progress()
        progress.set_plan(plan)
        self.runs.append(progress)
        self.dataflow.sources = self.sources
        context = RunContext(
            settings=settings,
            fingerprint=plan.fingerprint,
            generation=generation(self.store),
            journal=Journal(self.store, recording=self.recording),
            capacity=capacity,
            sources=[
                ReadAhead(
                    node,
                    source,
                    lambda: replace(capacity.caps(), first_rows=None),
                    poll_s=0.001,
                    wake=self.stop.wake,
                    on_error=plan.node(node).spec.options.on_error,
                )
                for node, source in self.sources.items()
            ],
            outlets=outlets,
            stop=self.stop,
            same_rows=self.same_rows,
        )
        bad_rows = BadRows(plan, "app", progress, letter_stores(plan, Settings()))
        listeners = {**self.sources, **self.sinks}
        metrics = EpochMetrics(plan, progress.meter, self.metrics, "app") if self.metrics is not None else None
        return EpochLoop(context, EpochSteps(context, self.dataflow, InOrder(), bad_rows, listeners, progress, metrics))

    @property
    def recording(self) -> bool:
        return self.same_rows or any(s.capabilities.guarantee is Guarantee.EXACTLY_ONCE for s in self.sinks.values())

    def run(self) -> EpochLoop:
        loop = self.loop()
        try:
            loop.run()
        finally:
            loop.stop_reading()
        return loop

    def crash(self) -> None:
        """Run until a hook of the test raises Crash; then remove the hooks."""
        try:
            self.run()
        except Crash:
            for sink in self.sinks.values():
                sink.before_commit = lambda epoch: None
            return
        raise AssertionError("the run did not crash")

    def left(self) -> list[Epoch]:
        """Epochs recorded and not finalized."""
        found = Journal(self.store, recording=True).pending("app", generation(self.store), lambda s: True)
        return [p.epoch for p in found]
