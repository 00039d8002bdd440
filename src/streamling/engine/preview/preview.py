"""A preview: plans what can be planned, runs it, and runs it again without a node that fails."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from streamling.engine.execution import Summary
from streamling.engine.preparation import check_unfinished
from streamling.engine.preview.effects import Allowance
from streamling.engine.preview.result import End, NodePreview, PreviewOptions
from streamling.engine.preview.rows import PreviewSink
from streamling.engine.preview.run import OPEN_BUDGET_S, PreviewRun, no_end
from streamling.engine.preview.tables import TableRows, read_tables
from streamling.engine.process.engine import Engine
from streamling.engine.process.launch import QUICK_JAVA
from streamling.engine.process.stop import StopRequest
from streamling.errors import (
    NODE_NOT_FOUND,
    NOTHING_TO_DO,
    InvalidPipeline,
    StreamlingError,
    UserError,
)
from streamling.plan.dynamic_tables import table_columns
from streamling.plan.graph import is_lookup
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.preview import PreviewPlan
from streamling.spec.faults import nearest
from streamling.spec.pipeline import PipelineText
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType, DrainPolicy, OpenTelemetryMetrics, StateBackend


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
            "drain_policy": DrainPolicy.FAST,
            "spark": spark,
        }
    )


class Preview:
    """One preview. What `Run` executes."""

    bounded = False
    unreplayable = False

    def __init__(self, pipeline: Path | PipelineText, settings: Settings, options: PreviewOptions) -> None:
        """`settings` are those of `preview_settings`."""
        self._pipeline = pipeline
        self._settings = settings
        self._options = options
        self._runs: list[PreviewRun] = []
        self._first: PreviewPlan | None = None
        self._rows: dict[str, PreviewSink] = {}
        self._tables: dict[str, TableRows] = {}
        self._rejected: dict[str, int] = {}
        self._allowances: dict[str, Allowance] = {}
        self.failures: dict[str, StreamlingError] = {}
        """By id: what happened to nodes that failed while rows were read."""
        self.end = End.INTERRUPTED

    @property
    def stop(self) -> StopRequest | None:
        return self._runs[-1].stop if self._runs else None

    @property
    def delivered(self) -> bool:
        return bool(self._runs) and self._runs[-1].delivered

    def run(self, engine: Engine, *, on_failure: Callable[[BaseException], object] = lambda error: None) -> Summary:
        """Raises InvalidPipeline if there is no node, or none can be planned."""
        planned = check_unfinished(self._pipeline, self._settings)
        planned = planned.only(self._wanted(planned)) if self._options.nodes else planned
        self._first = planned
        if not planned.plan.nodes and (planned.problems or not planned.left_out):
            raise InvalidPipeline(planned.problems or [_nothing_to_show()], planned.cautions)
        left: PreviewPlan | None = planned
        while left is not None and left.streams:
            since = next((run.reading_since for run in self._runs if run.reading_since is not None), None)
            options = self._options if since is None else self._options.after(time.monotonic() - since)
            run = PreviewRun(self._pipeline, self._settings, left, options, self._allowances)
            self._runs.append(run)
            left = self._attempt(run, engine)
        if left is not None and self._options.live is None:
            self._keep_tables(read_tables(left.plan, self._settings, self._options.rows, OPEN_BUDGET_S))
            self.end = End.INPUT if self.end is End.INTERRUPTED else self.end
        return self.summary()

    def _attempt(self, run: PreviewRun, engine: Engine) -> PreviewPlan | None:
        """Run once. Returns what is left without a node that has failed, if there was one."""
        error = _run(run, engine)
        self._keep(run)
        failed = run.waiting_transform
        self.end = run.end
        if error is not None:
            failed = run.find(error.node)
            if failed is None:
                raise error
            self._note_failure(failed, error)
            self.end = End.FAILED
        if failed is None or run.interrupted:
            return None
        return run.planned.without(failed, self.failures[failed.id].message)

    def _keep(self, run: PreviewRun) -> None:
        """The rows of nodes that are left out of the next run stay those of this one; so do those of a node that has
        used up its allowance."""
        for sink in run.sinks:
            earlier = self._rows.get(sink.node.ref)
            if earlier is None or sink.count >= earlier.count:
                self._rows[sink.node.ref] = sink
        self._rejected |= run.rejected
        self._keep_tables(run.tables)
        for name, trouble in run.troubles.items():
            node = run.find(name)
            if node is not None:
                self._note_failure(node, trouble)

    def _keep_tables(self, tables: dict[str, TableRows]) -> None:
        self._tables |= tables
        for id_, table in tables.items():
            if table.failure is not None:
                self._note_failure(self.planned.plan.node_by_id(id_), table.failure)

    def _note_failure(self, node: PlannedNode, error: StreamlingError) -> None:
        if node.id not in self.failures:
            self.failures[node.id] = error
            if self._options.live is not None:
                self._options.live.failed(error)

    def _wanted(self, planned: PreviewPlan) -> list[str]:
        names = {node.spec.ref: node.spec.name for node in planned.plan.nodes}
        names |= {spec.ref: spec.name for spec in planned.left_out or ()}
        for name in self._options.nodes:
            if name.lower() not in names:
                near = nearest(name, names)
                known = ", ".join(names.values()) or "none"
                hint = f"did you mean '{names[near]}'?" if near else f"nodes that can be shown: {known}"
                error = UserError(NODE_NOT_FOUND, f"there is no source or transform named '{name}'", hint=hint)
                # The node may be in lines that cannot be read.
                raise InvalidPipeline([error, *(problem for problem in planned.problems if problem.node is None)])
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
        shown = [self._shown(node) for node in self.planned.plan.nodes if self._options.shows(node.ref)]
        left_out = (self.planned.left_out or {}).items()
        return [*shown, *(NodePreview(spec, None, problem=reason) for spec, reason in left_out)]

    def _shown(self, node: PlannedNode) -> NodePreview:
        failure = self.failures.get(node.id)
        left_out = {spec: reason for run in self._runs for spec, reason in (run.planned.left_out or {}).items()}
        problem = failure.message if failure is not None else left_out.get(node.spec)
        if node not in self.planned.streams:
            columns = node.columns if is_lookup(node.spec) else table_columns(node.spec)
            table = self._tables.get(node.id, TableRows())
            return NodePreview(node.spec, columns, table.rows, table.count, problem=problem)
        sink, allowance = self._rows.get(node.ref), self._allowances.get(node.ref)
        note = f"a preview gives it at most {allowance.rows:,} rows" if allowance and allowance.exceeded else None
        if sink is None:
            return NodePreview(node.spec, node.columns, problem=problem, note=note)
        rejected = self._rejected.get(node.id, 0)
        return NodePreview(node.spec, node.columns, sink.rows, sink.count, rejected, problem, note)


def _nothing_to_show() -> UserError:
    return UserError(NOTHING_TO_DO, "the pipeline has no nodes: nothing to show", hint="add a node under 'sources'")


def _run(run: PreviewRun, engine: Engine) -> StreamlingError | None:
    """Run in a thread of its own, which is abandoned if code of the user does not end. Returns the error, if its node
    may be known. Raises others."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run.run(engine)
        except BaseException as error:
            failures.append(error)
        finally:
            run.ended.set()

    threading.Thread(target=work, name="preview run", daemon=True).start()
    run.ended.wait()
    if run.stuck is not None:
        return no_end(run.stuck)
    error = failures[0] if failures else None
    if error is not None and not isinstance(error, StreamlingError):
        raise error
    return error
