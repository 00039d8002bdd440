"""Everything before the first row: the stages that run, validate and plan share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from streamling.errors import JOB_MODE, InvalidPipeline, UserError
from streamling.plan.pipeline import Plan, make_plan
from streamling.plugin import registry
from streamling.plugin.contract import Sink, Source
from streamling.spec.pipeline import read_pipeline
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class Prepared:
    """A valid plan and its connectors, not opened yet."""

    plan: Plan
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]


def prepare(file: Path, settings: Settings) -> Prepared:
    """Read, check, plan. Touches nothing but the file; imports neither Spark nor Arrow."""
    plan = make_plan(read_pipeline(file, registry.kinds()), enforce_primary_keys=settings.enforce_primary_keys)
    sources = {n.ref: cast(Source, registry.build(n.spec, settings)) for n in plan.sources}
    sinks = {n.ref: cast(Sink, registry.build(n.spec, settings)) for n in plan.sinks}
    endless = sorted(n.spec.name for n in plan.sources if not sources[n.ref].bounded)
    if settings.job_mode and endless:
        names = ", ".join(f"'{name}'" for name in endless)
        first = next(n.spec for n in plan.sources if n.spec.name == endless[0])
        raise InvalidPipeline(
            [
                UserError(
                    JOB_MODE,
                    f"job_mode does not support sources that never end: {names}",
                    where=first.where,
                    hint="bound them, or run without job_mode",
                )
            ]
        )
    return Prepared(plan, sources, sinks)
