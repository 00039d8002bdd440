"""A run from start to exit code.

The main thread launches the JVM, then waits for signals. Two others work: one prepares the pipeline while the JVM
boots, then opens everything and runs the epoch loop. So a stop can always be heard, and bounded in time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamling.engine.bad_rows import BadRows
from streamling.engine.jvm import Jvm
from streamling.engine.launch import launch, stop_patience
from streamling.engine.preparation import Prepared, prepare
from streamling.engine.progress import Progress, Troubled
from streamling.engine.session import open_session, spark_conf
from streamling.engine.shutdown import Watchdog, drains, terminal_wait
from streamling.engine.signals import Signals, listen
from streamling.engine.spark_errors import spark_errors
from streamling.engine.state import StateStore, claim, generation, open_state
from streamling.engine.state.store import patiently
from streamling.engine.stop import StopRequest
from streamling.errors import JVM_FAILED, SPARK_FAILED, StreamlingError, TransientError
from streamling.plugin.abilities import (
    Batch,
    Batches,
    HearsFinalizers,
    HearsMarkers,
    Measured,
    Runtime,
    Shared,
    UsesRuntime,
)
from streamling.plugin.contract import Guarantee, Placement, Sink, SinkContext, Source, Transform, TransformContext
from streamling.plugin.functions import Udf
from streamling.plugin.side_outputs import SideOutput
from streamling.retry import retry
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamling.engine.capacity import Capacity
    from streamling.engine.delivery import Outlet
    from streamling.engine.loop import EpochLoop
    from streamling.engine.readahead import ReadAhead

log = logging.getLogger(__name__)

# With an interval of 0 rows are wanted at once; asking for them without a pause would cost a core.
_SHORTEST_POLL_S = 0.005
# A target that is not there at the start may be starting itself.
_OPEN_BUDGET_S = 60.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run has done."""

    epochs: int
    rows: int
    written: dict[str, int]
    seconds: float


class Run:
    """One run of one pipeline file in this process."""

    def __init__(
        self, file: Path, settings: Settings, *, verbose: bool = False, progress: Progress | None = None
    ) -> None:
        self._file, self._settings, self._verbose = file, settings, verbose
        self._progress = progress or Progress()
        self.metrics = Metrics()
        self._failure: BaseException | None = None
        self._bounded = self._loose = False
        self._delivered = False
        self._nodes: dict[str, NodeSpec] = {}
        self._stop: StopRequest | None = None
        self._session: SparkSession | None = None
        self._loop: EpochLoop | None = None
        self._outlets: list[Outlet] = []
        self._began = time.monotonic()

    def execute(self) -> Summary:
        """Run to the end. Returns normally after a natural end, a record limit or a signal; else raises."""
        signals = listen()
        jvm = launch(self._conf(), verbose=self._verbose)
        done = threading.Event()
        worker = threading.Thread(target=self._work, args=(jvm, done, signals), name="epochs", daemon=True)
        worker.start()
        while not done.is_set() and signals.received is None:
            signals.wait(None)
        if not done.is_set():
            self._shut_down(jvm, done, signals)
        finished = done.is_set()
        self._progress.done()
        self._leave(jvm, finished=finished)
        if self._failure is not None and finished:
            if signals.received is None or not isinstance(self._failure, TransientError):
                raise self._failure
            log.warning("the last epoch did not complete, its rows will come again: %s", self._failure)
        # A worker that was cut off after a signal fails because we took the JVM away; that is not news.
        return self._summary()

    def _conf(self, sinks: int = 1) -> dict[str, str]:
        return spark_conf(self._settings.spark, application=self._settings.application_id, sinks=sinks)

    # Worker thread

    def _work(self, jvm: Jvm, done: threading.Event, signals: Signals) -> None:
        try:
            self._run(jvm)
        except BaseException as error:  # handed to the main thread, which raises it
            self._failure = self._told(error, jvm)
        finally:
            done.set()
            signals.wake()

    def _run(self, jvm: Jvm) -> None:
        prepared = prepare(self._file, self._settings)
        for caution in prepared.plan.cautions:
            log.warning("%s", caution.message)
        if not prepared.sinks:
            return
        self._bounded = any(source.bounded for source in prepared.sources.values())
        self._loose = any(isinstance(source, HearsMarkers) for source in prepared.sources.values())
        self._progress.planned(prepared.plan)
        self._nodes = {name: n.spec for n in prepared.plan.nodes for name in (n.spec.name, n.ref)}
        store = open_state(self._settings)
        try:
            self._claim(store, prepared)
            self._run_loop(jvm, prepared, store)
        finally:
            close_all([*prepared.sources.values(), *prepared.transforms.values(), *prepared.sinks.values()])
            store.close()

    def _claim(self, store: StateStore, prepared: Prepared) -> None:
        """Positions of another pipeline with sources of the same name would be taken for ours."""
        other = patiently(lambda: claim(store, self._file))
        sources = tuple(node.ref for node in prepared.plan.sources)
        if other is not None and any(key.startswith(sources) for key in patiently(store.items)):
            log.warning(
                "the stored positions of application_id '%s' come from another pipeline file, %s: sources of the same "
                "name go on from there. Give each pipeline an application_id of its own",
                self._settings.application_id,
                other,
            )

    def _run_loop(self, jvm: Jvm, prepared: Prepared, store: StateStore) -> None:
        # Heavy imports happen here and in what is called from here, while the JVM boots.
        from streamling.engine.capacity import start_workers
        from streamling.engine.dataflow import Dataflow
        from streamling.engine.delivery import Delivery
        from streamling.engine.functions import open_functions
        from streamling.engine.loop import EpochLoop
        from streamling.engine.pending import Journal

        plan, settings = prepared.plan, self._settings
        if not store.durable:
            log.warning("state is kept in memory: progress is lost on restart")
        epoch_generation = patiently(lambda: generation(store))
        self._attach(prepared, store)
        stop = StopRequest()
        _join(prepared, stop)
        self._outlets = self._opened_outlets(prepared, epoch_generation)
        self._open_transforms(prepared)
        with spark_errors(None):
            session = self._session = open_session(jvm, self._conf(sinks=len(self._outlets)))
            open_functions(session, _functions_of(prepared), lambda: start_workers(session))
        capacity = self._capacity(session, prepared)
        sources = self._reading_ahead(prepared, capacity, stop)
        exactly_once = any(o.sink.capabilities.guarantee is Guarantee.EXACTLY_ONCE for o in self._outlets)
        if exactly_once:
            _tell_of_loose_rows(prepared)
        bad_rows = BadRows(plan, settings.application_id, self._progress)
        delivery = Delivery(session, self._outlets, stop, self._progress, bad_rows)
        self._loop = EpochLoop(
            plan=plan,
            settings=settings,
            generation=epoch_generation,
            journal=Journal(store, recording=exactly_once),
            dataflow=Dataflow(session, plan, prepared.sources, prepared.transforms, bad_rows),
            delivery=delivery,
            bad_rows=bad_rows,
            capacity=capacity,
            sources=sources,
            outlets=self._outlets,
            listeners=_listeners(prepared),
            stop=stop,
            progress=self._progress,
        )
        measured = {ref: s.extent for ref, s in prepared.sources.items() if isinstance(s, Measured)}
        troubled: dict[str, Troubled] = {s.node: s for s in sources}
        troubled |= {o.node.ref: o for o in self._outlets}
        self._progress.running(measured, troubled, bounded=all(s.bounded for s in prepared.sources.values()))
        self._stop = stop  # from here on rows may be in flight, and a signal has something to wait for
        try:
            self._loop.run()
            self._delivered = True
        except BaseException as error:
            # What follows closes things, and could hang in one of them.
            Watchdog(settings.runtime.shutdown_budget_secs, jvm.kill, because=str(error))
            raise
        finally:
            capacity.close()
            self._loop.stop_reading()
            delivery.close()

    def _attach(self, prepared: Prepared, store: StateStore) -> None:
        """State and metrics for the nodes that ask for them."""
        for node in (*prepared.sources.values(), *prepared.transforms.values(), *prepared.sinks.values()):
            if isinstance(node, UsesRuntime):
                node.attach(Runtime(self._settings.application_id, store, self.metrics))

    def _opened_outlets(self, prepared: Prepared, epoch_generation: str) -> list[Outlet]:
        from streamling.engine.delivery import Outlet

        settings = self._settings
        outlets = [
            Outlet(node, sink, _sink_wish(node.spec.options, sink), _limit(node.spec.options, sink, settings))
            for node in prepared.plan.sinks
            for sink in (prepared.sinks[node.ref],)
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

    def _open_transforms(self, prepared: Prepared) -> None:
        plan = prepared.plan
        for ref, transform in prepared.transforms.items():
            node = plan.node(ref)
            input_schema = plan.node(node.inputs[0]).schema
            application = self._settings.application_id
            transform.open(TransformContext(ref, application, input_schema, node.schema, node.primary_key, node.width))

    def _capacity(self, session: SparkSession, prepared: Prepared) -> Capacity:
        from streamling.engine.capacity import Capacity, start_workers
        from streamling.engine.cores import cores

        writes_here = any(o.sink.capabilities.placement is Placement.DRIVER for o in self._outlets)
        return Capacity(
            self._settings,
            collects=writes_here or bool(prepared.transforms),
            sources=len(prepared.sources),
            limit=min((o.limit for o in self._outlets if o.limit), default=None),
            warm_up=lambda: start_workers(session),
            cores=lambda: cores(session),
        )

    def _reading_ahead(self, prepared: Prepared, capacity: Capacity, stop: StopRequest) -> list[ReadAhead]:
        from streamling.engine.readahead import ReadAhead

        poll_s = max(self._settings.record_batch_interval_ms / 1000, _SHORTEST_POLL_S)
        return [
            ReadAhead(
                node.ref,
                prepared.sources[node.ref],
                capacity.caps,
                poll_s=poll_s,
                wake=stop.wake,
                on_error=node.spec.options.on_error,
                wish=_source_wish(node.spec.options, self._settings),
                waiting=capacity.waiting,
                pausing=lambda: capacity.preparing,
            )
            for node in prepared.plan.sources
        ]

    def _told(self, error: BaseException, jvm: Jvm) -> BaseException:
        """If the JVM is gone, that is the news, whatever the symptom was."""
        # A JVM that dies while it answers leaves half an answer, which looks as if Spark had refused something.
        symptom = not isinstance(error, StreamlingError) or error.condition in (JVM_FAILED, SPARK_FAILED)
        if symptom and jvm.ended():
            failure = jvm.failure("the Java virtual machine ended")
            failure.__cause__ = error
            return failure
        if isinstance(error, StreamlingError):
            self._place(error)
        return error

    def _place(self, error: StreamlingError) -> None:
        """Where the node of an error stands in the file, for errors that come while rows flow."""
        node = self._nodes.get(error.node or "")
        if node is None or error.where is not None:
            return
        error.where = node.where
        if f"'{node.name}'" not in error.message:
            error.message = f"{node.described()}: {error.message}"
            error.args = (error.message,)

    # Main thread

    def _shut_down(self, jvm: Jvm, done: threading.Event, signals: Signals) -> None:
        """After a signal: what is in flight flows through, within the budget."""
        budget = self._settings.runtime.shutdown_budget_secs
        Watchdog(budget, jvm.kill)
        name, wait_s = signals.received.name if signals.received else "stop", terminal_wait(budget)
        log.info("%s received, stopping; the last epoch has up to %d s, Ctrl-C again ends at once", name, wait_s)
        self._progress.stopping()
        if self._stop is None:
            return  # still starting: nothing is in flight
        settings = self._settings
        policy = drains(settings.drain_policy, job_mode=settings.job_mode, bounded=self._bounded, loose=self._loose)
        self._stop.request(drains=policy)
        deadline = time.monotonic() + wait_s
        while not done.is_set() and not signals.insisted and (left := deadline - time.monotonic()) > 0:
            signals.wait(left)
        if signals.insisted and not done.is_set():
            log.warning("interrupted again: ending at once; what is not finalized will come again after a restart")
        elif self._delivered and not done.is_set():
            log.warning("all rows read are delivered, but some nodes did not close in time")
        elif not done.is_set():
            log.warning("the last epoch did not complete in time; its rows will come again after a restart")

    def _leave(self, jvm: Jvm, *, finished: bool) -> None:
        """Let the JVM end in order, so that it removes its files; hard if it is still starting or a job hangs."""
        if self._session is None or not finished:
            jvm.kill()
            return
        _quietly(self._session.sparkContext._gateway.close)
        jvm.stop(stop_patience())

    def _summary(self) -> Summary:
        loop = self._loop
        return Summary(
            epochs=loop.epochs if loop else 0,
            rows=loop.rows if loop else 0,
            written={o.name: o.written for o in self._outlets},
            seconds=time.monotonic() - self._began,
        )


def _join(prepared: Prepared, stop: StopRequest) -> None:
    """Early: a group takes seconds to divide a topic, and so does the session to start."""
    for source in prepared.sources.values():
        if isinstance(source, Shared):
            source.join(stop.wake)


def _tell_of_loose_rows(prepared: Prepared) -> None:
    for node in prepared.plan.sources:
        if isinstance(prepared.sources[node.ref], HearsMarkers):
            log.info("rows of '%s' cannot be read a second time: sinks have them at least once", node.spec.name)


def _functions_of(prepared: Prepared) -> list[Udf]:
    from streamling.engine.functions import used_functions

    selects = [source.select for source in prepared.sources.values() if source.select is not None]
    return used_functions(prepared.plan, [text for select in selects for text, _ in select.columns])


def _listeners(prepared: Prepared) -> list[HearsFinalizers]:
    nodes = (*prepared.sources.values(), *prepared.transforms.values(), *prepared.sinks.values())
    return [node for node in nodes if isinstance(node, HearsFinalizers)]


def close_all(nodes: Sequence[Source | Transform | Sink]) -> None:
    """Side by side: some wait for code that does not answer, each for as long as it may."""
    closing = [threading.Thread(target=_quietly, args=(node.close,), name="close", daemon=True) for node in nodes]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:  # leaving anyway
        log.debug("while leaving: %s", error)


def _wish(options: object) -> Batch | None:
    rows, interval = getattr(options, "batch_size", None), getattr(options, "batch_flush_interval", None)
    if rows is None and interval is None:
        return None
    return Batch(rows, interval.total_seconds() if interval is not None else None)


def _sink_wish(options: object, sink: Sink) -> Batch | None:
    return sink.batch if isinstance(sink, Batches) else _wish(options)


def _source_wish(options: object, settings: Settings) -> Batch | None:
    """A source that asks for one of both has the other from the settings; one that asks for neither gathers nothing."""
    wish = _wish(options)
    if wish is None:
        return None
    interval = settings.record_batch_interval_ms / 1000
    return Batch(wish.rows or settings.record_batch_size, interval if wish.seconds is None else wish.seconds)


def _limit(options: object, sink: Sink, settings: Settings) -> int | None:
    """The node's own limit, else that of its kind, else the application's. Who only watches has none."""
    if isinstance(sink, SideOutput):
        return None
    own = getattr(options, "num_records_before_stop", None)
    if own is None and getattr(options, "type", None) == "print":
        own = settings.print_sink.num_records_before_stop
    return own if own is not None else settings.num_records_before_stop
