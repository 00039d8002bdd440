"""Everything before the first row: the stages that run, validate and plan share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from streamling.connector import Sink, Source, Transform, kinds
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
from streamling.plan.contract import DeclaresColumns, Discovery
from streamling.plan.pipeline import Discoveries, Plan, make_plan
from streamling.plugin.loading import load_plugins
from streamling.plugin.preprocessing import preprocess
from streamling.plugin.side_outputs import add_side_outputs, check_side_outputs
from streamling.spec.connections import shared_connections, unused_connections
from streamling.spec.pipeline import NodeSpec, PipelineSpec, PipelineText, in_file_order, load_pipeline, pipeline_text
from streamling.spec.pipeline.options import FileLetters, OnError
from streamling.spec.settings import Settings

# A registry or a database that is well answers in milliseconds; a person who waits for a check gives it no longer.
PROBE_SECONDS = 10.0
PROBES_AT_ONCE = 8
# A lookup measures its own time; ours starts earlier and must not end first.
_GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A valid plan and its connectors, not opened yet."""

    plan: Plan
    sources: Mapping[str, Source]
    transforms: Mapping[str, Transform]
    """Those that are no queries."""
    sinks: Mapping[str, Sink]

    @property
    def connectors(self) -> Sequence[Source | Transform | Sink]:
        return [*self.sources.values(), *self.transforms.values(), *self.sinks.values()]


def check(file: Path | PipelineText, settings: Settings, *, probe: bool) -> Plan:
    """Read, check, plan. Raises InvalidPipeline with all problems.

    Without `probe` nothing but the file is touched. With it, sources whose columns are not in the file are
    looked up; sinks never are. Neither Spark nor, without `probe`, Arrow is imported.
    """
    loaded = load_plugins(settings)
    check_side_outputs(settings)
    pipeline, rewritten = _read(file, settings)
    pipeline = replace(pipeline, problems=(*pipeline.problems, *shared_connections(pipeline)))
    plan = make_plan(
        pipeline,
        discoveries=discovered(pipeline, settings) if probe else {},
        enforce_primary_keys=settings.enforce_primary_keys,
        job_mode=settings.job_mode,
    )
    unready = (Caution(p.condition, p.message, p.node, p.where, p.hint) for p in _not_runnable(plan))
    given = (*loaded, *rewritten, *unused_connections(pipeline, settings))
    return replace(plan, cautions=(*given, *in_file_order((*plan.cautions, *unready))))


def prepare(file: Path | PipelineText, settings: Settings) -> Prepared:
    """A pipeline that can run. Raises InvalidPipeline if it is wrong or asks for what this version lacks."""
    plan = check(file, settings, probe=True)
    problems = list(_not_runnable(plan))
    if problems:
        raise InvalidPipeline(in_file_order(problems))
    watching = add_side_outputs(plan, settings)
    sources = {n.ref: cast(Source, kinds.build(n.spec, settings)) for n in plan.sources}
    for node in plan.sources:
        sources[node.ref].prepare(node.schema, watching.plan.columns_read(node.ref))
    processing = [n for n in plan.transforms if not kinds.kind_of(n.spec).compiled]
    return Prepared(
        watching.plan,
        sources=sources,
        transforms={n.ref: cast(Transform, kinds.build(n.spec, settings)) for n in processing},
        sinks={n.ref: cast(Sink, kinds.build(n.spec, settings)) for n in plan.sinks} | dict(watching.sinks),
    )


def _read(file: Path | PipelineText, settings: Settings) -> tuple[PipelineSpec, list[Caution]]:
    """The pipeline as its preprocessors make it, and what there is to say about them."""
    made = preprocess(file.text if isinstance(file, PipelineText) else pipeline_text(file), settings)
    # Lines and columns of a rewritten text are not those of the file.
    name = f"{file} (rewritten by {', '.join(made.ran)})" if made.ran else str(file)
    return load_pipeline(made.text, name, kinds.kinds(), made.unresolved(), settings), made.cautions()


def discovered(pipeline: PipelineSpec, settings: Settings) -> Discoveries:
    """What the outside world knows of the sources whose columns are not in the file."""
    wanted = [(node, probe) for node in pipeline.sources if (probe := _probe_for(node)) is not None]
    if not wanted:
        return {}
    pool = ThreadPoolExecutor(min(PROBES_AT_ONCE, len(wanted)), thread_name_prefix="probe")
    # A lookup that does not keep to its time is left to itself: the check goes on without it.
    deadline = time.monotonic() + PROBE_SECONDS * (1 + (len(wanted) - 1) // PROBES_AT_ONCE) + _GRACE_SECONDS
    asked = [(node, pool.submit(_asked, probe, node, settings)) for node, probe in wanted]
    pool.shutdown(wait=False)
    return {node.ref: _answer(node, future, deadline) for node, future in asked}


def _answer(
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
        return None  # the planner meets the same error and reports it


def _asked(probe: kinds.Probe, node: NodeSpec, settings: Settings) -> Discovery | StreamlingError:
    try:
        return probe(node, settings, PROBE_SECONDS)
    except StreamlingError as error:
        return error
    except Exception as error:  # whatever it is, the other sources have their problems too
        message = f"{node.described()}: its columns could not be looked up: {error}"
        return BugError(INTERNAL, message, node=node.name, where=node.where, cause=error)


def _not_runnable(plan: Plan) -> Iterator[UserError]:
    for node in plan.nodes:
        if not kinds.kind_of(node.spec).runs:
            yield node.spec.error(NOT_RUNNABLE, "this version can check this kind of node but not run it yet", "type")
        if node.spec.options.on_error is not OnError.FAIL and not kinds.kind_of(node.spec).sets_aside:
            wanted = node.spec.options.on_error.value
            message = f"on_error '{wanted}' is not available yet for nodes of this kind"
            yield node.spec.error(NOT_RUNNABLE, message, "on_error")
        elif not isinstance(node.spec.options.dead_letter, FileLetters | None):
            message = "dead letters can only go to files yet"
            yield node.spec.error(NOT_RUNNABLE, message, "dead_letter", "type")
