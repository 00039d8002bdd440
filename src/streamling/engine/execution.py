"""One run of one pipeline: from the first check to the last epoch, in the calling thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamling.connector import Guarantee, Placement, Sink, Transform
from streamling.engine.opening import Opening
from streamling.engine.preparation import PreparedPipeline, prepare
from streamling.engine.process.engine import Engine
from streamling.engine.process.session import spark_conf
from streamling.engine.process.shutdown import close_all
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.bad_rows import BadRows
from streamling.engine.protocol.facts import only_driver_works
from streamling.engine.protocol.progress import HasTrouble, Progress
from streamling.engine.protocol.renames import check_names
from streamling.engine.protocol.run_metrics import make_epoch_metrics, watch_readiness
from streamling.engine.protocol.state import StateStore, claim, generation, open_state
from streamling.engine.protocol.state.store import ask_state
from streamling.errors import StreamlingError, TransientError
from streamling.letters.store import LetterStore
from streamling.plan.pipeline import Plan
from streamling.spec.pipeline import NodeSpec, PipelineText
from streamling.spec.settings import Settings
from streamling.telemetry.inspection import Samples
from streamling.telemetry.run_telemetry import Telemetry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamling.engine.data.capacity import Capacity
    from streamling.engine.data.lookups.tables import LookupTables
    from streamling.engine.data.readahead import ReadAhead
    from streamling.engine.process.workers import PythonWorkers
    from streamling.engine.protocol.context import RunContext
    from streamling.engine.protocol.delivery import Delivery, Outlet
    from streamling.engine.protocol.epoch_metrics import EpochMetrics
    from streamling.engine.protocol.loop import EpochLoop
    from streamling.engine.protocol.overdue import OverdueWatch
    from streamling.engine.protocol.pending import Journal

log = logging.getLogger(__name__)

# With an interval of 0 rows are read as soon as they arrive; polling without a pause would use a whole core.
_SHORTEST_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run. `rows_of`: the rows of memory sinks, by the name of the sink."""

    epochs: int
    rows: int
    written: dict[str, int]
    seconds: float
    rows_of: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Troubled:
    transform: Transform

    @property
    def trouble(self) -> str | None:
        return self.transform.trouble()


class Execution:
    """One run of a pipeline. Other threads may read only the attributes that say so."""

    open_budget_s = 60.0
    """How long targets and tables may take to answer at the start: they may still be starting."""
    warns_of_lost_positions = True
    instance_suffix = ""
    """Follows the application id in metrics: runs at the same time must not add to the same series."""

    def __init__(
        self,
        pipeline: Path | PipelineText,
        settings: Settings,
        progress: Progress | None = None,
        samples: Samples | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._progress = progress or Progress()
        self._samples = samples
        self._instance = settings.application_id + self.instance_suffix
        self._telemetry = Telemetry(settings, self._instance)
        self.metrics = self._telemetry.metrics
        """Any thread may read it."""
        self._epoch_metrics: EpochMetrics | None = None
        self.journal: Journal | None = None
        """The stored positions, while the state backend is open. Any thread may read it."""
        self._nodes: dict[str, NodeSpec] = {}
        self._loop: EpochLoop | None = None
        self._outlets: list[Outlet] = []
        self._letters: dict[str, LetterStore] = {}
        self._began = time.monotonic()
        self.stop: StopRequest | None = None
        """Set once rows may be in flight, so that a stop has something to wait for. Any thread may read it."""
        self.bounded = False
        """Whether a source is bounded, or begins with a bounded phase. Any thread may read it."""
        self.unreplayable = False
        """Whether a source gives rows that cannot be replayed. Any thread may read it."""
        self.delivered = False
        """Whether all rows are delivered, and only closing is left. Any thread may read it."""

    def run(self, engine: Engine, *, on_failure: Callable[[BaseException], object] = lambda error: None) -> Summary:
        """Run until the input ends, a record limit is reached or a stop is requested. Raises the first error;
        `on_failure` gets it before the nodes are closed, because closing may take long."""
        try:
            self._run(engine, on_failure)
        except BaseException as error:
            cause = self._note_failure(engine, error)
            if self.stop is not None and self.stop.requested and isinstance(cause, TransientError):
                self._note_skipped()
            if cause is error:
                raise
            raise cause from error
        finally:
            self._telemetry.close()
        return self.summary()

    def _note_failure(self, engine: Engine, error: BaseException) -> BaseException:
        """Returns the error to report."""
        cause = engine.cause(error)
        if isinstance(cause, StreamlingError):
            self._locate(cause)
        self._progress.set_failure(cause)
        return cause

    def abandon(self) -> None:
        """The process ends without the last epoch: send the last metrics. Any thread may call it."""
        self._note_skipped()
        self._telemetry.close()

    def _note_skipped(self) -> None:
        """The run ends without the finalization of its last epoch."""
        metrics, self._epoch_metrics = self._epoch_metrics, None  # once, whichever thread is first
        if metrics is not None and not self.delivered:
            metrics.skipped_last()

    def summary(self) -> Summary:
        loop = self._loop
        results = {outlet.name: outlet.sink.result() for outlet in self._outlets}
        return Summary(
            epochs=loop.epochs if loop else 0,
            rows=loop.rows if loop else 0,
            written={o.name: o.written for o in self._outlets},
            seconds=time.monotonic() - self._began,
            rows_of={name: list(rows) for name, rows in results.items() if rows is not None},
        )

    def _run(self, engine: Engine, on_failure: Callable[[BaseException], object]) -> None:
        activity = self._progress.activity
        with activity.step("preparing the pipeline"):
            prepared = self._prepare()
        for caution in prepared.plan.cautions:
            log.warning("%s", caution.message)
        if not prepared.sinks:
            return
        self.bounded = any(source.drains for source in prepared.sources.values())
        self.unreplayable = bool(prepared.unreplayable)
        self._progress.set_plan(prepared.plan, self.metrics)
        watch_readiness(self.metrics, self._progress, self._settings, prepared.sources.values(), self._instance)
        self._nodes = nodes_by_name(prepared.plan)
        self._letters = dict(prepared.letters)
        with activity.step("opening the state backend"):
            store = open_state(self._settings)
        try:
            with activity.step("reading the state"):
                self._claim(store, prepared)
            self._run_loop(engine, prepared, store, on_failure)
        except BaseException as error:
            self._note_failure(engine, error)  # now: closing may take long
            raise
        finally:
            nodes = [*prepared.connectors, *prepared.lookups.values(), *prepared.tables.values()]
            close_all([*nodes, *self._letters.values()])
            self.journal = None
            store.close()

    def _prepare(self) -> PreparedPipeline:
        return prepare(self._pipeline, self._settings)

    def _claim(self, store: StateStore, prepared: PreparedPipeline) -> None:
        """Warn if the positions come from another pipeline file: sources of the same name would continue from them."""
        other = ask_state(lambda: claim(store, self._pipeline))
        sources = tuple(node.ref for node in prepared.plan.sources)
        if other is not None and any(key.startswith(sources) for key in ask_state(store.items)):
            log.warning(
                "the stored positions of application_id '%s' come from another pipeline file, %s: sources of the same "
                "name continue from there. Give each pipeline its own application_id",
                self._settings.application_id,
                other,
            )

    def _run_loop(
        self,
        engine: Engine,
        prepared: PreparedPipeline,
        store: StateStore,
        on_failure: Callable[[BaseException], object],
    ) -> None:
        if self.warns_of_lost_positions and not store.durable:
            log.warning("state is kept in memory: progress is lost on restart")
        epoch_generation = ask_state(lambda: generation(store))
        stop = StopRequest()
        opening = Opening(prepared, self._settings, epoch_generation, self.open_budget_s, self._progress)
        lookups = self._open_nodes(opening, prepared, store, stop)
        with self._progress.activity.step("starting Spark"):
            session = self._open_session(engine)
            workers = self._open_functions(session, prepared)
        capacity = self._make_capacity(session, prepared, workers)
        sources = self._make_read_aheads(prepared, capacity, stop)
        context = self._make_context(prepared, store, epoch_generation, capacity, sources, stop, lookups)
        self.journal = context.journal
        loop, delivery, overdue = self._make_loop(session, prepared, context)
        self._loop = loop
        self._start_progress(prepared, sources, lookups)
        self.stop = stop
        try:
            if lookups is not None:
                lookups.start()
            with overdue:
                loop.run()
            self.delivered = True
        except BaseException as error:
            on_failure(error)
            raise
        finally:
            capacity.close()
            loop.stop_reading()
            delivery.close()
            if lookups is not None:
                lookups.close()

    # The parts of a run. They are imported here and not above, while Java starts: they import Arrow and PySpark.

    def _open_nodes(
        self, opening: Opening, prepared: PreparedPipeline, store: StateStore, stop: StopRequest
    ) -> LookupTables | None:
        opening.attach(store, self.metrics, stop)
        self._outlets = opening.outlets()
        opening.transforms()
        opening.tables()
        opening.letters(self._letters)
        lookups = opening.lookups(recording=self._is_exactly_once or prepared.needs_same_rows)
        ask_state(lambda: check_names(store, self._outlets))
        return lookups

    def _open_functions(self, session: SparkSession, prepared: PreparedPipeline) -> PythonWorkers:
        from streamling.engine.data.functions import open_functions
        from streamling.engine.process.workers import PythonWorkers

        workers = PythonWorkers(session)
        open_functions(session, prepared.plan, prepared.sources.values(), workers)
        return workers

    def _make_loop(
        self, session: SparkSession, prepared: PreparedPipeline, context: RunContext
    ) -> tuple[EpochLoop, Delivery, OverdueWatch]:
        from streamling.engine.data.dataflow import Dataflow
        from streamling.engine.data.sampling import Sampler
        from streamling.engine.protocol.delivery import Delivery
        from streamling.engine.protocol.epoch_trace import trace_epoch
        from streamling.engine.protocol.loop import EpochLoop
        from streamling.engine.protocol.overdue import OverdueWatch
        from streamling.engine.protocol.steps import EpochSteps

        plan, settings, stop = prepared.plan, self._settings, context.stop
        bad_rows = BadRows(plan, settings.application_id, self._progress, self._letters)
        connectors = (prepared.sources, prepared.transforms, prepared.sinks)
        activity, tables, lookups = self._progress.activity, prepared.tables, context.lookups
        dataflow = Dataflow(session, plan, *connectors, bad_rows, context.retry, lookups, tables, activity)
        metrics = make_epoch_metrics(plan, self.metrics, self._progress, settings, context.sources, self._instance)
        self._epoch_metrics = metrics
        max_same = settings.epoch.max_same_rejects
        delivery = Delivery(session, dataflow, self._outlets, stop, bad_rows, max_same, activity)
        sampler = Sampler(plan, self._samples) if self._samples is not None else None
        trace, listeners = partial(trace_epoch, self._telemetry), prepared.connectors_by_id
        steps = EpochSteps(context, dataflow, delivery, bad_rows, listeners, self._progress, metrics, trace, sampler)
        return EpochLoop(context, steps), delivery, OverdueWatch(metrics)

    def _make_context(
        self,
        prepared: PreparedPipeline,
        store: StateStore,
        epoch_generation: str,
        capacity: Capacity,
        sources: list[ReadAhead],
        stop: StopRequest,
        lookups: LookupTables | None,
    ) -> RunContext:
        from streamling.engine.protocol.context import RunContext
        from streamling.engine.protocol.pending import Journal

        same_rows = prepared.needs_same_rows
        if self._is_exactly_once:
            for name in prepared.unreplayable:
                log.info("rows of '%s' cannot be replayed: sinks receive them at least once", name)
        return RunContext(
            settings=self._settings,
            fingerprint=prepared.plan.fingerprint,
            generation=epoch_generation,
            journal=Journal(store, recording=self._is_exactly_once or same_rows),
            capacity=capacity,
            sources=sources,
            outlets=self._outlets,
            stop=stop,
            now_us=prepared.now_us,
            transform_policies=[t.capabilities.batch for t in prepared.transforms.values() if t.capabilities.batch],
            lookups=lookups,
            same_rows=same_rows,
            activity=self._progress.activity,
        )

    @property
    def _is_exactly_once(self) -> bool:
        """Whether a sink is."""
        return any(o.sink.capabilities.guarantee is Guarantee.EXACTLY_ONCE for o in self._outlets)

    def _start_progress(
        self, prepared: PreparedPipeline, sources: Sequence[ReadAhead], lookups: LookupTables | None
    ) -> None:
        extents = {ref: source.extent for ref, source in prepared.sources.items()}
        troubled: dict[str, HasTrouble] = {source.node: source for source in sources}
        troubled |= {prepared.plan.node(ref).id: _Troubled(t) for ref, t in prepared.transforms.items()}
        troubled |= lookups.all if lookups is not None else {}
        troubled |= {outlet.node.id: outlet for outlet in self._outlets}
        reading = {source.node: partial(_reading_since, source) for source in sources}
        bounded = all(source.bounded for source in prepared.sources.values())
        self._progress.set_running(extents, troubled, bounded=bounded, reading=reading)

    def _open_session(self, engine: Engine) -> SparkSession:
        from streamling.engine.process.shipping import ship_plugins
        from streamling.engine.process.tasks import running_work

        settings = self._settings
        conf = spark_conf(settings.spark, application=settings.application_id, sinks=len(self._outlets))
        session = engine.session(conf, meanwhile=self._telemetry.start)
        self._telemetry.start()  # the session may have been open already
        ship_plugins(session.sparkContext)
        self._progress.activity.count_tasks = partial(running_work, session)
        return session

    def _make_capacity(self, session: SparkSession, prepared: PreparedPipeline, workers: PythonWorkers) -> Capacity:
        from streamling.engine.data.capacity import Capacity
        from streamling.engine.process.cores import cores

        working: list[Transform | Sink] = [*prepared.transforms.values(), *prepared.sinks.values()]
        collects = any(node.capabilities.placement is Placement.DRIVER for node in working)
        connectors = (prepared.sources.values(), prepared.transforms.values(), prepared.sinks.values())
        return Capacity(
            self._settings,
            collects=collects or bool(prepared.tables),  # dynamic tables are asked in the driver
            direct=only_driver_works(prepared.plan, *connectors),
            sources=len(prepared.sources),
            limit=min((o.limit for o in self._outlets if o.limit), default=None),
            start_workers=workers.start_in_background,
            count_cores=lambda: cores(session),
        )

    def _make_read_aheads(self, prepared: PreparedPipeline, capacity: Capacity, stop: StopRequest) -> list[ReadAhead]:
        from streamling.engine.data.readahead import ReadAhead
        from streamling.engine.data.reading import read_event_time

        poll_s = max(self._settings.record_batch_interval_ms / 1000, _SHORTEST_POLL_S)
        return [
            ReadAhead(
                node.ref,
                prepared.sources[node.ref],
                capacity.caps,
                poll_s=poll_s,
                wake=stop.wake,
                on_error=node.spec.options.on_error,
                note_waiting=capacity.note_waiting,
                is_paused=lambda: capacity.starting_workers,
                event_time=read_event_time(node.spec, prepared.sources[node.ref]),
                name=node.spec.name,
            )
            for node in prepared.plan.sources
        ]

    def _locate(self, error: StreamlingError) -> None:
        """Add the node's place in the file to an error that occurred while rows flowed."""
        node = self._nodes.get(error.node or "")
        if node is None:
            return
        error.node = node.name  # errors of readers have the name that is used in state keys
        if error.where is not None:
            return
        error.where = node.where
        if f"'{node.name}'" not in error.message:
            error.message = f"{node.described()}: {error.message}"
            error.args = (error.message,)


def _reading_since(source: ReadAhead) -> float | None:
    since = (source.reading_since, source.source.reading_since())
    return min((began for began in since if began is not None), default=None)


def nodes_by_name(plan: Plan) -> dict[str, NodeSpec]:
    """Nodes by the names that errors use. If a dynamic table and another node share a name, it means the other node."""
    tables_first = sorted(plan.nodes, key=lambda node: node.id == node.ref)
    return {name: node.spec for node in tables_first for name in (node.spec.name, node.ref)}
