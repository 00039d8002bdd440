"""Previews: the first rows of every node of a pipeline, which may be unfinished.

No sink, no dead-letter destination and no state is opened, no consumer group is joined, and nothing that moves on with
finalized epochs hears of them. So a preview may run next to the pipeline.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamling.connector import Source
from streamling.engine.execution import Execution, Summary
from streamling.engine.preparation import (
    PreparedPipeline,
    build_lookups,
    build_tables,
    build_transforms,
    check_unfinished,
    prepare_source,
)
from streamling.engine.preview_rows import Emit, FirstRows, PreviewSink, SampledRows, add_preview_sinks
from streamling.engine.process.engine import Engine
from streamling.engine.process.launch import QUICK_JAVA
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.progress import Progress
from streamling.errors import (
    NODE_NOT_FOUND,
    SOURCE_FAILED,
    InvalidPipeline,
    StreamlingError,
    TransientError,
    UserError,
)
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.preview import PreviewPlan
from streamling.spec.faults import nearest
from streamling.spec.pipeline import NodeSpec, PipelineText, Role
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType, OpenTelemetryMetrics, StateBackend
from streamling.telemetry.inspection import Samples

if TYPE_CHECKING:
    from streamling.engine.data.capacity import Capacity
    from streamling.engine.data.lookups.tables import LookupTables
    from streamling.engine.data.readahead import ReadAhead
    from streamling.engine.protocol.context import RunContext
    from streamling.plan.types import Schema

log = logging.getLogger(__name__)

# Rows of an epoch after the first, which has only the rows to show. Nodes that filter need more than that.
_EPOCH_ROWS = 1000
# The same if a node may call other systems or cost money: a handler, for instance.
_CAREFUL_EPOCH_ROWS = 100
# A table that is there answers within this time; somebody waits for the preview.
_OPEN_BUDGET_S = 5.0
_CHECK_S = 0.05
# More rows may arrive at any moment. Unless the user sets a time, sources that have read everything get this long, and
# longer if they had no row at all.
_QUIET_S = 1.0
_EMPTY_S = 3.0
# How much longer the first rows may take: Spark compiles what computes them.
_WARM_UP_S = 30.0


class End(StrEnum):
    """Why a preview ended."""

    ROWS = "every node has its rows"
    INPUT = "end of input"
    CAUGHT_UP = "no more rows at the moment"
    TIME = "time is up"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Who gets rows while a preview runs, instead of the first rows at its end. `start` is called with the nodes."""

    start: Callable[[Sequence[PlannedNode]], object]
    emit: Emit


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """`nodes`: which ones to show; empty = all. `seconds`: how long to read; None = until the sources have caught up,
    at most `DEFAULT_SECONDS`."""

    rows: int = 10
    seconds: float | None = None
    nodes: tuple[str, ...] = ()
    live: LiveRows | None = None


DEFAULT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class NodePreview:
    """What is shown of a node. Without `columns` it could not be planned."""

    spec: NodeSpec
    columns: Schema | None
    rows: Sequence[Mapping[str, Any]] = ()
    count: int = 0
    """How many rows it had while the preview ran."""
    rejected: int = 0
    problem: str | None = None
    """Why there are no rows, or no more."""


def preview_settings(settings: Settings) -> Settings:
    """The settings with which a preview runs: an application of its own that leaves no traces."""
    spark = {key: value for key, value in settings.spark.items() if key != "spark.master"}
    java = spark.get("spark.driver.extraJavaOptions", "")
    spark["spark.driver.extraJavaOptions"] = f"{QUICK_JAVA} {java}".strip()
    return settings.model_copy(
        update={
            "application_id": f"{settings.application_id}-preview-{uuid.uuid4().hex[:8]}",
            "state_backend": StateBackend(backend_type=BackendType.IN_MEMORY),
            "kafka_source": settings.kafka_source.model_copy(update={"consumer_group_id": None}),
            "plugin": settings.plugin.model_copy(update={"side_output_ids": ()}),
            "open_telemetry_metrics": OpenTelemetryMetrics(),
            "live_data_inspect_enabled": False,
            "job_mode": False,
            "enforce_primary_keys": False,
            "num_records_before_stop": None,
            "checkpoint_interval_sec": 1,
            "progress_exit_secs": None,
            "spark": spark,
        }
    )


class Preview:
    """One preview: plans what can be planned, runs it, and runs it again without a node that fails."""

    bounded = True
    unreplayable = False

    def __init__(self, pipeline: Path | PipelineText, settings: Settings, options: PreviewOptions) -> None:
        """`settings` are those of `preview_settings`."""
        self._pipeline = pipeline
        self._settings = settings
        self._options = options
        self._runs: list[PreviewRun] = []
        self._first: PreviewPlan | None = None
        self._rows: dict[str, PreviewSink] = {}
        self._rejected: dict[str, int] = {}
        self.failures: dict[str, StreamlingError] = {}
        """By name: what happened to nodes that failed while rows were read."""
        self.end = End.INTERRUPTED

    @property
    def stop(self) -> StopRequest | None:
        return self._runs[-1].stop if self._runs else None

    @property
    def delivered(self) -> bool:
        return bool(self._runs) and self._runs[-1].delivered

    def run(self, engine: Engine, *, on_failure: Callable[[BaseException], object] = lambda error: None) -> Summary:
        """Raises InvalidPipeline if no node can be planned."""
        planned = check_unfinished(self._pipeline, self._settings)
        planned = planned.only(self._wanted(planned)) if self._options.nodes else planned
        self._first = planned
        if not planned.streams and planned.problems:
            raise InvalidPipeline(planned.problems, planned.cautions)
        while planned.streams:
            run = PreviewRun(self._pipeline, self._settings, planned, self._options)
            self._runs.append(run)
            failed = self._attempt(run, engine)
            if failed is None:
                break
            planned = planned.without(failed, self.failures[failed.spec.name].message)
        return self.summary()

    def _attempt(self, run: PreviewRun, engine: Engine) -> PlannedNode | None:
        """Run once. Returns the node that failed, if the others can be run without it."""
        try:
            run.run(engine)
        except StreamlingError as error:
            self._keep(run)
            node = run.find(error.node)
            if node is None:
                raise
            self.failures[node.spec.name] = error
            self.end = End.FAILED
            return None if run.interrupted else node
        self._keep(run)
        self.end = run.end
        # A source without rows does not keep others from giving some; a transform that waits stops its whole epoch.
        waiting = (run.find(name) for name in run.troubles)
        return next((node for node in waiting if node is not None and node.spec.role is not Role.SOURCE), None)

    def _keep(self, run: PreviewRun) -> None:
        """The rows of nodes that are left out of the next run stay those of this one."""
        self._rows |= {rows.node.ref: rows for rows in run.sinks}
        self._rejected |= run.rejected
        for name, trouble in run.troubles.items():
            self.failures.setdefault(name, trouble)

    def _wanted(self, planned: PreviewPlan) -> list[str]:
        names = {node.spec.ref: node.spec.name for node in planned.streams}
        names |= {spec.ref: spec.name for spec in planned.left_out or ()}
        for name in self._options.nodes:
            if name.lower() not in names:
                near = nearest(name, names)
                known = ", ".join(names.values()) or "none"
                hint = f"did you mean '{names[near]}'?" if near else f"nodes that have rows: {known}"
                raise UserError(NODE_NOT_FOUND, f"there is no source or transform named '{name}'", hint=hint)
        return [name.lower() for name in self._options.nodes]

    def abandon(self) -> None:
        if self._runs:
            self._runs[-1].abandon()

    def summary(self) -> Summary:
        return self._runs[-1].summary() if self._runs else Summary(0, 0, {}, 0.0)

    # Results

    @property
    def planned(self) -> PreviewPlan:
        """What was planned; empty if the file could not be read."""
        return self._first or PreviewPlan(Plan(()))

    def nodes(self) -> list[NodePreview]:
        """In the order of the plan; those that could not be planned last."""
        wanted = {name.lower() for name in self._options.nodes}
        shown = [self._shown(node) for node in self.planned.streams if not wanted or node.ref in wanted]
        left_out = (self.planned.left_out or {}).items()
        return [*shown, *(NodePreview(spec, None, problem=reason) for spec, reason in left_out)]

    def _shown(self, node: PlannedNode) -> NodePreview:
        failure = self.failures.get(node.spec.name)
        left_out = {spec.ref: reason for run in self._runs for spec, reason in (run.planned.left_out or {}).items()}
        problem = failure.message if failure is not None else left_out.get(node.ref)
        rows = self._rows.get(node.ref)
        if rows is None:
            return NodePreview(node.spec, node.columns, problem=problem)
        return NodePreview(node.spec, node.columns, rows.rows, rows.count, self._rejected.get(node.id, 0), problem)


class PreviewRun(Execution):
    """One run of the nodes that can run."""

    open_budget_s = _OPEN_BUDGET_S
    warns_of_lost_positions = False

    def __init__(
        self, pipeline: Path | PipelineText, settings: Settings, planned: PreviewPlan, options: PreviewOptions
    ) -> None:
        super().__init__(pipeline, settings, Progress())
        self.planned = planned
        self._options = options
        self._sinks: dict[str, PreviewSink] = {}
        self._sources: Mapping[str, Source] = {}
        self._watching = threading.Event()
        self._stopped_as: End | None = None
        self.troubles: Mapping[str, StreamlingError] = {}
        """By node: what kept it from giving any row until the time was up."""

    @property
    def sinks(self) -> Sequence[PreviewSink]:
        return tuple(self._sinks.values())

    @property
    def interrupted(self) -> bool:
        """Whether the user ended it."""
        return self.stop is not None and self.stop.requested and self._stopped_as is None

    @property
    def end(self) -> End:
        return self._stopped_as or (End.INTERRUPTED if self.interrupted else End.INPUT)

    @property
    def rejected(self) -> dict[str, int]:
        nodes = zip(
            self._progress.plan.nodes if self._progress.plan else (), self._progress.snapshot().nodes, strict=False
        )
        return {node.id: progress.rejected for node, progress in nodes if progress.rejected}

    def _find_troubles(self) -> dict[str, StreamlingError]:
        empty = {rows.node.spec.name: rows.node.spec for rows in self._sinks.values() if not rows.count}
        troubles = {node.name: node.trouble for node in self._progress.snapshot().nodes if node.trouble}
        for ref, source in self._sources.items():
            if source.capabilities.shared and not source.assigned():
                troubles.setdefault(self.planned.plan.node(ref).spec.name, "the system that it reads has not answered")
        return {
            name: TransientError(
                SOURCE_FAILED, f"{spec.described()}: no rows yet: {troubles[name]}", node=name, where=spec.where
            )
            for name, spec in empty.items()
            if name in troubles
        }

    def find(self, name: str | None) -> PlannedNode | None:
        """The node that an error names."""
        nodes = self.planned.plan.nodes
        return next((node for node in nodes if name in (node.spec.name, node.ref, node.id)), None)

    # What differs from a run of the pipeline

    def _prepare(self) -> PreparedPipeline:
        settings = self._settings
        nodes = tuple(
            replace(node, spec=replace(node.spec, options=node.spec.options.for_preview()))
            for node in self.planned.plan.nodes
        )
        wanted = {name.lower() for name in self._options.nodes}
        shown = [node for node in self.planned.streams if not wanted or node.ref in wanted]
        plan, self._sinks = add_preview_sinks(Plan(nodes), shown, self._make_sink(shown))
        self._sources = {node.ref: prepare_source(plan, node, settings) for node in plan.sources}
        return PreparedPipeline(
            plan,
            sources=self._sources,
            transforms=build_transforms(plan, settings),
            sinks=self._sinks,
            tables={ref: table.for_preview() for ref, table in build_tables(plan, settings).items()},
            letters={},
            lookups=build_lookups(plan, settings),
        )

    def _make_sink(self, shown: Sequence[PlannedNode]) -> Callable[[PlannedNode], PreviewSink]:
        live = self._options.live
        if live is None:
            return lambda node: FirstRows(node, self._options.rows)
        live.start(shown)
        block = self._settings.live_data_inspect
        names = [node.spec.name for node in shown]
        samples = Samples(names, block.records_per_topology_node, block.refresh_in_secs)

        def pause() -> None:
            while self.stop is not None and not self.stop.requested and not any(map(samples.wanted, names)):
                self.stop.pause(_CHECK_S)

        return lambda node: SampledRows(node, samples, live.emit, pause)

    def _make_capacity(self, session: Any, prepared: PreparedPipeline, workers: Any) -> Capacity:
        capacity = super()._make_capacity(session, prepared, workers)
        repeatable = all(transform.capabilities.deterministic for transform in prepared.transforms.values())
        rows = max(_EPOCH_ROWS if repeatable else _CAREFUL_EPOCH_ROWS, self._options.rows)
        capacity.limit_rows(rows, first=self._options.rows)
        return capacity

    def _make_context(self, *arguments: Any) -> RunContext:
        return replace(super()._make_context(*arguments), transform_policies=(), acknowledges=False)

    def _start_progress(
        self, prepared: PreparedPipeline, sources: Sequence[ReadAhead], lookups: LookupTables | None
    ) -> None:
        super()._start_progress(prepared, sources, lookups)
        threading.Thread(target=self._watch, name="preview", daemon=True).start()

    def _run_loop(self, *arguments: Any) -> None:
        try:
            super()._run_loop(*arguments)
        finally:
            self._watching.set()

    def _watch(self) -> None:
        """Stop the run as soon as there is nothing more to wait for."""
        deadline = time.monotonic() + (self._options.seconds or DEFAULT_SECONDS)
        quiet_since: float | None = None
        while not self._watching.wait(_CHECK_S):
            now = time.monotonic()
            quiet_since = (quiet_since or now) if self._caught_up() else None
            patience = _QUIET_S if any(rows.count for rows in self._sinks.values()) else _EMPTY_S
            if all(rows.complete for rows in self._sinks.values()):
                end = End.ROWS
            elif now >= deadline + (_WARM_UP_S if self._is_warming_up() else 0.0):
                end = End.TIME
            elif self._options.seconds is None and quiet_since is not None and now - quiet_since > patience:
                end = End.CAUGHT_UP
            else:
                continue
            if self.stop is not None and not self.stop.requested:
                self.troubles = self._find_troubles() if end is End.TIME else {}
                self._stopped_as = end
                self.stop.request(drains=False)
                return

    def _is_warming_up(self) -> bool:
        """Whether the first rows are still being computed, which takes seconds on a busy machine."""
        loop = self._loop
        return loop is not None and not loop.epochs and not loop.idle and not self._progress.snapshot().troubles

    def _caught_up(self) -> bool:
        """Whether every source has read all rows that it knows of, and all of them have been computed."""
        extents = [source.extent() for source in self._sources.values()]
        if not all(extent is not None and extent.done >= extent.total for extent in extents):
            return False
        return self._loop is not None and self._loop.idle
