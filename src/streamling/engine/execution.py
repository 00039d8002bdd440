"""One run of one pipeline: from the first check to the last epoch, in the thread that calls it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamling.connector import (
    Guarantee,
    Placement,
    Runtime,
    Sink,
    SinkContext,
    Source,
    Transform,
    TransformContext,
)
from streamling.engine.data.spark_errors import spark_errors
from streamling.engine.preparation import Prepared, prepare
from streamling.engine.process.engine import Engine, quietly
from streamling.engine.process.session import spark_conf
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.bad_rows import BadRows
from streamling.engine.protocol.progress import Progress, Troubled
from streamling.engine.protocol.state import StateStore, claim, generation, open_state
from streamling.engine.protocol.state.store import patiently
from streamling.errors import StreamlingError
from streamling.plan.pipeline import Plan
from streamling.plugin.functions import Udf
from streamling.retry import retry
from streamling.spec.pipeline import NodeSpec, PipelineText
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamling.engine.data.capacity import Capacity
    from streamling.engine.data.readahead import ReadAhead
    from streamling.engine.data.results import NodeRows
    from streamling.engine.protocol.delivery import Outlet
    from streamling.engine.protocol.loop import EpochLoop

log = logging.getLogger(__name__)

# With an interval of 0 rows are wanted at once; asking for them without a pause would cost a core.
_SHORTEST_POLL_S = 0.005
# A target that is not there at the start may be starting itself.
_OPEN_BUDGET_S = 60.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run has done. `rows_of`: the rows of memory sinks, by the name of the sink."""

    epochs: int
    rows: int
    written: dict[str, int]
    seconds: float
    rows_of: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)


class Execution:
    """A pipeline on its way. Asked from other threads only what says so."""

    def __init__(self, pipeline: Path | PipelineText, settings: Settings, progress: Progress | None = None) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._progress = progress or Progress()
        self._metrics = Metrics()
        self._nodes: dict[str, NodeSpec] = {}
        self._loop: EpochLoop | None = None
        self._outlets: list[Outlet] = []
        self._began = time.monotonic()
        self.stop: StopRequest | None = None
        """There once rows may be in flight, and a stop has something to wait for. Asked from any thread."""
        self.bounded = False
        """Whether a source ends by itself. Asked from any thread."""
        self.loose = False
        """Whether rows of a source cannot be read again. Asked from any thread."""
        self.delivered = False
        """Whether all rows are delivered, and only closing is left. Asked from any thread."""

    def run(self, engine: Engine, *, failing: Callable[[BaseException], object] = lambda error: None) -> Summary:
        """Run to the end: of the input, by a record limit, or by a stop. Raises the first error; `failing` hears it
        before nodes are closed, which may take its time."""
        try:
            self._run(engine, failing)
        except BaseException as error:
            cause = engine.cause(error)
            if isinstance(cause, StreamlingError):
                self._place(cause)
            if cause is error:
                raise
            raise cause from error
        return self.summary()

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

    def _run(self, engine: Engine, failing: Callable[[BaseException], object]) -> None:
        prepared = prepare(self._pipeline, self._settings)
        for caution in prepared.plan.cautions:
            log.warning("%s", caution.message)
        if not prepared.sinks:
            return
        self.bounded = any(source.bounded for source in prepared.sources.values())
        self.loose = any(not source.capabilities.replayable for source in prepared.sources.values())
        self._progress.planned(prepared.plan)
        self._nodes = _nodes_by_name(prepared.plan)
        store = open_state(self._settings)
        try:
            self._claim(store, prepared)
            self._run_loop(engine, prepared, store, failing)
        finally:
            close_all(prepared.connectors)
            store.close()

    def _claim(self, store: StateStore, prepared: Prepared) -> None:
        """Positions of another pipeline with sources of the same name would be taken for ours."""
        other = patiently(lambda: claim(store, self._pipeline))
        sources = tuple(node.ref for node in prepared.plan.sources)
        if other is not None and any(key.startswith(sources) for key in patiently(store.items)):
            log.warning(
                "the stored positions of application_id '%s' come from another pipeline file, %s: sources of the same "
                "name go on from there. Give each pipeline an application_id of its own",
                self._settings.application_id,
                other,
            )

    def _run_loop(
        self, engine: Engine, prepared: Prepared, store: StateStore, failing: Callable[[BaseException], object]
    ) -> None:
        # Heavy imports happen here and in what is called from here, while the JVM boots.
        from streamling.engine.data.dataflow import Dataflow
        from streamling.engine.protocol.context import RunContext
        from streamling.engine.protocol.delivery import Delivery
        from streamling.engine.protocol.loop import EpochLoop
        from streamling.engine.protocol.pending import Journal

        plan, settings = prepared.plan, self._settings
        if not store.durable:
            log.warning("state is kept in memory: progress is lost on restart")
        epoch_generation = patiently(lambda: generation(store))
        for node in prepared.connectors:
            node.attach(Runtime(settings.application_id, store, self._metrics))
        stop = StopRequest()
        for source in prepared.sources.values():
            source.join(stop.wake)  # early: a group takes seconds to divide a topic, and so does the session to start
        self._outlets = self._opened_outlets(prepared, epoch_generation)
        self._open_transforms(prepared, epoch_generation)
        session = self._opened_session(engine, prepared)
        capacity = self._capacity(session, prepared)
        sources = self._reading_ahead(prepared, capacity, stop)
        exactly_once = any(o.sink.capabilities.guarantee is Guarantee.EXACTLY_ONCE for o in self._outlets)
        if exactly_once:
            _tell_of_loose_rows(prepared)
        bad_rows = BadRows(plan, settings.application_id, self._progress)
        dataflow = Dataflow(
            session, plan, prepared.sources, prepared.transforms, prepared.sinks, bad_rows, _retrying(stop)
        )
        delivery = Delivery(session, dataflow, self._outlets, stop, self._progress, bad_rows)
        context = RunContext(
            settings=settings,
            fingerprint=plan.fingerprint,
            generation=epoch_generation,
            journal=Journal(store, recording=exactly_once),
            capacity=capacity,
            sources=sources,
            outlets=self._outlets,
            stop=stop,
        )
        loop = EpochLoop(context, dataflow, delivery, bad_rows, prepared.connectors, self._progress)
        self._loop = loop
        self._show_progress(prepared, sources)
        self.stop = stop
        try:
            loop.run()
            self.delivered = True
        except BaseException as error:
            failing(error)
            raise
        finally:
            capacity.close()
            loop.stop_reading()
            delivery.close()

    def _show_progress(self, prepared: Prepared, sources: Sequence[ReadAhead]) -> None:
        extents = {ref: source.extent for ref, source in prepared.sources.items()}
        troubled: dict[str, Troubled] = {source.node: source for source in sources}
        troubled |= {outlet.node.id: outlet for outlet in self._outlets}
        self._progress.running(extents, troubled, bounded=all(s.bounded for s in prepared.sources.values()))

    def _opened_session(self, engine: Engine, prepared: Prepared) -> SparkSession:
        from streamling.engine.data.capacity import start_workers
        from streamling.engine.data.functions import open_functions
        from streamling.engine.process.shipping import ship_plugins

        settings = self._settings
        conf = spark_conf(settings.spark, application=settings.application_id, sinks=len(self._outlets))
        session = engine.session(conf)
        ship_plugins(session.sparkContext)
        with spark_errors(None):
            open_functions(session, _functions_of(prepared), lambda: start_workers(session))
        return session

    def _opened_outlets(self, prepared: Prepared, epoch_generation: str) -> list[Outlet]:
        from streamling.engine.protocol.delivery import Outlet

        settings = self._settings
        outlets = [
            Outlet(node, prepared.sinks[node.ref], _limit(prepared.sinks[node.ref], settings))
            for node in prepared.plan.sinks
        ]
        for outlet in outlets:
            node = outlet.node
            context = SinkContext(
                node.ref, settings.application_id, epoch_generation, node.schema, node.primary_key, node.width
            )
            self._open(outlet, context)
        return outlets

    def _open(self, outlet: Outlet, context: SinkContext) -> None:
        retry(
            lambda: outlet.sink.open(context),
            what=f"opening sink '{outlet.name}'",
            stopping=lambda: False,
            budget_s=_OPEN_BUDGET_S,
        )

    def _open_transforms(self, prepared: Prepared, epoch_generation: str) -> None:
        plan = prepared.plan
        for ref, transform in prepared.transforms.items():
            node = plan.node(ref)
            context = TransformContext(
                ref,
                self._settings.application_id,
                epoch_generation,
                plan.node(node.inputs[0]).schema,
                node.schema,
                node.primary_key,
                node.width,
            )
            transform.open(context)

    def _capacity(self, session: SparkSession, prepared: Prepared) -> Capacity:
        from streamling.engine.data.capacity import Capacity, start_workers
        from streamling.engine.process.cores import cores

        placements = {transform.capabilities.placement for transform in prepared.transforms.values()}
        placements |= {sink.capabilities.placement for sink in prepared.sinks.values()}
        return Capacity(
            self._settings,
            collects=Placement.DRIVER in placements,
            sources=len(prepared.sources),
            limit=min((o.limit for o in self._outlets if o.limit), default=None),
            warm_up=lambda: start_workers(session),
            count_cores=lambda: cores(session),
        )

    def _reading_ahead(self, prepared: Prepared, capacity: Capacity, stop: StopRequest) -> list[ReadAhead]:
        from streamling.engine.data.readahead import ReadAhead

        poll_s = max(self._settings.record_batch_interval_ms / 1000, _SHORTEST_POLL_S)
        return [
            ReadAhead(
                node.ref,
                prepared.sources[node.ref],
                capacity.caps,
                poll_s=poll_s,
                wake=stop.wake,
                on_error=node.spec.options.on_error,
                waiting=capacity.waiting,
                pausing=lambda: capacity.preparing,
            )
            for node in prepared.plan.sources
        ]

    def _place(self, error: StreamlingError) -> None:
        """Where the node of an error stands in the file, for errors that come while rows flow."""
        node = self._nodes.get(error.node or "")
        if node is None or error.where is not None:
            return
        error.where = node.where
        if f"'{node.name}'" not in error.message:
            error.message = f"{node.described()}: {error.message}"
            error.args = (error.message,)


def _tell_of_loose_rows(prepared: Prepared) -> None:
    for node in prepared.plan.sources:
        if not prepared.sources[node.ref].capabilities.replayable:
            log.info("rows of '%s' cannot be read a second time: sinks have them at least once", node.spec.name)


def _functions_of(prepared: Prepared) -> list[Udf]:
    from streamling.engine.data.functions import used_functions

    return used_functions(prepared.plan, [s.select for s in prepared.sources.values() if s.select is not None])


def _nodes_by_name(plan: Plan) -> dict[str, NodeSpec]:
    """Nodes by what errors call them. Of a dynamic table and another node with one name it is the other."""
    tables_first = sorted(plan.nodes, key=lambda node: node.id == node.ref)
    return {name: node.spec for node in tables_first for name in (node.spec.name, node.ref)}


def _retrying(stop: StopRequest) -> Callable[[Callable[[], NodeRows], str], NodeRows]:
    return lambda action, what: retry(action, what=what, stopping=lambda: stop.requested, sleep=stop.pause)


def close_all(nodes: Sequence[Source | Transform | Sink]) -> None:
    """Side by side: some wait for code that does not answer, each for as long as it may."""
    closing = [threading.Thread(target=quietly, args=(node.close,), name="close", daemon=True) for node in nodes]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()


def _limit(sink: Sink, settings: Settings) -> int | None:
    """The sink's own limit, else the application's."""
    capabilities = sink.capabilities
    if capabilities.observer:
        return None
    return capabilities.record_limit if capabilities.record_limit is not None else settings.num_records_before_stop
