"""Everything before the first row: the stages that `run`, `validate` and `plan` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from streamling.connector import Lookup, Sink, Slice, Source, Transform, kinds
from streamling.connector.table import TableBackend
from streamling.errors import (
    INTERNAL,
    NOT_RUNNABLE,
    SCHEMA_NOT_FOUND,
    BugError,
    Caution,
    InvalidPipeline,
    StreamlingError,
    TransientError,
    UserError,
)
from streamling.letters.store import LetterStore, letter_stores
from streamling.plan.contract import DeclaresColumns, Discovery
from streamling.plan.graph import is_lookup
from streamling.plan.pipeline import Discoveries, Plan, draft_plan, make_plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.preview import PreviewPlan, preview_plan
from streamling.plugin.loading import load_plugins
from streamling.plugin.preprocessing import preprocess
from streamling.plugin.side_outputs import add_side_outputs, check_side_outputs
from streamling.spec.connections import shared_connections, unused_connections
from streamling.spec.pipeline import (
    NodeSpec,
    PipelineSpec,
    PipelineText,
    in_file_order,
    load_pipeline,
    pipeline_text,
)
from streamling.spec.settings import Settings

# A healthy schema registry or database answers in milliseconds; a user who runs a check should not wait for longer.
PROBE_SECONDS = 10.0
PROBES_AT_ONCE = 8
# A probe measures its own time; ours starts earlier and must not end first.
_GRACE_SECONDS = 1.0


def current_time(slices: Sequence[Slice]) -> int:
    """Microseconds since 1970, whatever the slices are."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class PreparedPipeline:
    """A valid plan and its connectors, not opened yet."""

    plan: Plan
    sources: Mapping[str, Source]
    transforms: Mapping[str, Transform]
    """Those that are not compiled to queries."""
    sinks: Mapping[str, Sink]
    tables: Mapping[str, TableBackend]
    """What keeps the values of the dynamic tables."""
    letters: Mapping[str, LetterStore]
    """By node: where its bad rows are stored, for those with `on_error: dead_letter`."""
    lookups: Mapping[str, Lookup] = field(default_factory=dict)
    now_us: Callable[[Sequence[Slice]], int] = current_time
    """What `now()` means in an epoch of these slices."""

    @property
    def connectors(self) -> Sequence[Source | Transform | Sink]:
        return list(self.connectors_by_id.values())

    @property
    def connectors_by_id(self) -> dict[str, Source | Transform | Sink]:
        """By the ids of their nodes in the plan."""
        sources = {self.plan.node(ref).id: source for ref, source in self.sources.items()}
        transforms = {self.plan.node(ref).id: transform for ref, transform in self.transforms.items()}
        return {**sources, **transforms, **{node.id: self.sinks[node.ref] for node in self.plan.sinks}}

    @property
    def needs_same_rows(self) -> bool:
        """Whether a node needs interrupted epochs to be replayed with the same rows."""
        nodes: list[Transform | Sink] = [*self.transforms.values(), *self.sinks.values()]
        return any(node.capabilities.same_rows for node in nodes)

    @property
    def unreplayable(self) -> list[str]:
        """The names of the sources whose rows cannot be replayed."""
        return [node.spec.name for node in self.plan.sources if not self.sources[node.ref].capabilities.replayable]


def check(file: Path | PipelineText, settings: Settings, *, probe: bool) -> Plan:
    """Read, check and plan a pipeline. Raises InvalidPipeline with all problems.

    Without `probe` only the file is read. With it, the columns of sources that the file does not declare are looked
    up; sinks are never contacted. Spark is not imported, and without `probe` neither is Arrow.
    """
    plugin_cautions = load_plugins(settings)
    check_side_outputs(settings)
    pipeline, preprocessor_cautions = _read(file, settings)
    pipeline = replace(pipeline, problems=(*pipeline.problems, *shared_connections(pipeline)))
    plan = make_plan(
        pipeline,
        discoveries=probe_sources(pipeline, settings) if probe else {},
        enforce_primary_keys=settings.enforce_primary_keys,
        job_mode=settings.job_mode,
    )
    not_runnable = (Caution(p.condition, p.message, p.node, p.where, p.hint) for p in _not_runnable(plan))
    general = (*plugin_cautions, *preprocessor_cautions, *unused_connections(pipeline, settings))
    return replace(plan, cautions=(*general, *in_file_order((*plan.cautions, *not_runnable))))


def check_unfinished(file: Path | PipelineText, settings: Settings) -> PreviewPlan:
    """Read and plan as much of a pipeline as possible, without its sinks. Columns of sources are looked up.

    Raises InvalidPipeline if the file is not readable as YAML.
    """
    plugin_cautions = load_plugins(settings)
    pipeline, preprocessor_cautions = _read(file, settings, unfinished=True)
    pipeline = replace(pipeline, problems=(*pipeline.problems, *shared_connections(pipeline)))
    draft = draft_plan(pipeline, probe_sources(pipeline, settings))
    sound = Plan(tuple(node for node in draft.nodes if node.spec.model is not None))
    problems = in_file_order((*draft.problems, *_not_runnable(sound)))
    cautions = (*plugin_cautions, *preprocessor_cautions, *draft.cautions)
    return preview_plan(pipeline, replace(draft, problems=tuple(problems), cautions=cautions))


def prepare(file: Path | PipelineText, settings: Settings) -> PreparedPipeline:
    """A pipeline that can run. Raises InvalidPipeline if it is wrong or needs something that this version lacks."""
    plan, side_outputs = runnable_plan(file, settings)
    return PreparedPipeline(
        plan,
        sources={node.ref: prepare_source(plan, node, settings) for node in plan.sources},
        transforms=build_transforms(plan, settings),
        tables=build_tables(plan, settings),
        sinks=build_sinks(plan, settings, side_outputs),
        letters=letter_stores(plan, settings),
        lookups=build_lookups(plan, settings),
    )


def runnable_plan(file: Path | PipelineText, settings: Settings) -> tuple[Plan, Mapping[str, Sink]]:
    """The plan with side outputs as sinks, and these sinks. Raises InvalidPipeline."""
    plan = check(file, settings, probe=True)
    problems = list(_not_runnable(plan))
    if problems:
        raise InvalidPipeline(in_file_order(problems))
    watching = add_side_outputs(plan, settings)
    return watching.plan, watching.sinks


def prepare_source(plan: Plan, node: PlannedNode, settings: Settings) -> Source:
    source = cast(Source, kinds.build(node.spec, settings))
    source.prepare(node.schema, plan.columns_read(node.ref))
    return source


def build_transforms(plan: Plan, settings: Settings) -> dict[str, Transform]:
    """The connectors of transforms that are not compiled to queries, and that are neither lookups nor tables."""
    others = (*plan.lookups, *plan.dynamic_tables)
    processing = [node for node in plan.transforms if not kinds.kind_of(node.spec).compiled and node not in others]
    return {node.ref: cast(Transform, kinds.build(node.spec, settings)) for node in processing}


def build_lookups(plan: Plan, settings: Settings) -> dict[str, Lookup]:
    lookups = {node.ref: cast(Lookup, kinds.build(node.spec, settings)) for node in plan.lookups}
    for ref, lookup in lookups.items():
        lookup.prepare(plan.node(ref).schema)
    return lookups


def build_tables(plan: Plan, settings: Settings) -> dict[str, TableBackend]:
    return {node.ref: cast(TableBackend, kinds.build(node.spec, settings)) for node in plan.dynamic_tables}


def build_sinks(plan: Plan, settings: Settings, side_outputs: Mapping[str, Sink]) -> dict[str, Sink]:
    return {
        node.ref: side_outputs[node.ref] if node.ref in side_outputs else cast(Sink, kinds.build(node.spec, settings))
        for node in plan.sinks
    }


def _read(
    file: Path | PipelineText, settings: Settings, *, unfinished: bool = False
) -> tuple[PipelineSpec, list[Caution]]:
    """The pipeline as its preprocessors rewrite it, and their cautions."""
    made = preprocess(file.text if isinstance(file, PipelineText) else pipeline_text(file), settings)
    # Lines and columns of a rewritten text are not those of the file.
    name = f"{file} (rewritten by {', '.join(made.ran)})" if made.ran else str(file)
    pipeline = load_pipeline(made.text, name, kinds.kinds(), made.unresolved(), settings, unfinished=unfinished)
    return pipeline, made.cautions()


def probe_sources(pipeline: PipelineSpec, settings: Settings) -> Discoveries:
    """Look up the columns of the sources and lookups that do not declare them in the file."""
    tables = (node for node in pipeline.transforms if is_lookup(node))
    probes = [(node, probe) for node in (*pipeline.sources, *tables) if (probe := _probe_for(node)) is not None]
    if not probes:
        return {}
    pool = ThreadPoolExecutor(min(PROBES_AT_ONCE, len(probes)), thread_name_prefix="probe")
    # A probe that exceeds its time is abandoned: the check continues without it.
    deadline = time.monotonic() + PROBE_SECONDS * (1 + (len(probes) - 1) // PROBES_AT_ONCE) + _GRACE_SECONDS
    futures = [(node, pool.submit(_run_probe, probe, node, settings)) for node, probe in probes]
    pool.shutdown(wait=False)
    return {node.ref: _wait_for_probe(node, future, deadline) for node, future in futures}


def _wait_for_probe(
    node: NodeSpec, future: Future[Discovery | StreamlingError], deadline: float
) -> Discovery | StreamlingError:
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        message = f"{node.described()}: its columns could not be looked up within {PROBE_SECONDS:g} s"
        return TransientError(SCHEMA_NOT_FOUND, message, node=node.name, where=node.where)


def _probe_for(node: NodeSpec) -> kinds.Probe | None:
    probe = kinds.kind_of(node).probe if node.sound else None
    if probe is None or not isinstance(node.options, DeclaresColumns):
        return probe
    try:
        return probe if node.options.output_schema(node) is None else None
    except StreamlingError:
        return None  # the planner gets the same error and reports it


def _run_probe(probe: kinds.Probe, node: NodeSpec, settings: Settings) -> Discovery | StreamlingError:
    try:
        return probe(node, settings, PROBE_SECONDS)
    except StreamlingError as error:
        return error
    except Exception as error:  # one broken probe must not hide the problems of the other sources
        message = f"{node.described()}: its columns could not be looked up: {error}"
        return BugError(INTERNAL, message, node=node.name, where=node.where, cause=error)


def _not_runnable(plan: Plan) -> Iterator[UserError]:
    for node in plan.nodes:
        if not kinds.kind_of(node.spec).runs:
            message = "this kind of node can be validated but not run in this version"
            yield node.spec.error(NOT_RUNNABLE, message, "type")
