"""What is known about a node before it runs: where it runs, and a sink's delivery guarantee."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamling.connector import Lookup, Placement, Sink, SinkCapabilities, Source, Transform, kinds
from streamling.connector.table import TableBackend
from streamling.engine.preparation import build_sinks, prepare_source
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """`delivery` is a sink's guarantee, with its remark; None for other nodes."""

    runs: str
    delivery: str | None = None


def only_driver_works(
    plan: Plan, sources: Iterable[Source], transforms: Iterable[Transform], sinks: Iterable[Sink]
) -> bool:
    """Whether nothing is computed between the sources and sinks that write in the driver: then it reads all rows too.
    `sources` are prepared."""
    working: list[Transform | Sink] = [*transforms, *sinks]
    placements = {node.capabilities.placement for node in working}
    computes = bool(plan.transforms) or any(source.select is not None for source in sources)
    return placements == {Placement.DRIVER} and not computes


def facts_of(plan: Plan, node: PlannedNode, settings: Settings) -> NodeFacts:
    """Builds connectors to get their capabilities; building one has no effect outside."""
    kind = kinds.kind_of(node.spec)
    if not kind.runs:
        return NodeFacts("not in this version")
    if kind.compiled:
        return NodeFacts("in Spark")
    connector = kinds.build(node.spec, settings)
    both = f"on the driver up to {settings.epoch.driver_rows:,} rows per epoch, on the executors above that"
    if isinstance(connector, Lookup):
        return NodeFacts(f"on the driver, again every {connector.refresh_s:g} s; its rows are sent to the executors")
    if isinstance(connector, TableBackend):
        return NodeFacts("on the driver")
    if isinstance(connector, Source):
        driver = not connector.capabilities.replayable or _reads_in_driver(plan, settings)
        return NodeFacts("on the driver" if driver else both)
    place = both if connector.capabilities.placement is Placement.ANY else "on the driver"
    return NodeFacts(place, _delivery(connector.capabilities) if isinstance(connector, Sink) else None)


def describe(plan: Plan, node: PlannedNode, facts: NodeFacts) -> dict[str, Any]:
    """A node for programs: what it reads, its key, its columns and its facts."""
    columns = node.columns
    return {
        "name": node.spec.name,
        "role": node.spec.role.value,
        "type": node.spec.type,
        "reads": [plan.node(ref).spec.name for ref in node.inputs],
        "asks": [plan.dynamic_table(ref).spec.name for ref in node.asks],
        "joins": [plan.node(ref).spec.name for ref in node.lookups],
        "primary_key": list(node.primary_key),
        "delivery": facts.delivery,
        "runs": facts.runs,
        "columns": None
        if columns is None
        else [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in columns],
    }


def _reads_in_driver(plan: Plan, settings: Settings) -> bool:
    if plan.transforms or "driver_rows" in settings.epoch.model_fields_set:
        return False
    # A source whose columns are not known cannot be prepared; it computes only a filter.
    unknown = [node for node in plan.sources if node.columns is None]
    if any(getattr(node.spec.options, "filter", None) is not None for node in unknown):
        return False
    sources = [prepare_source(plan, node, settings) for node in plan.sources if node not in unknown]
    return only_driver_works(plan, sources, (), build_sinks(plan, settings, {}).values())


def _delivery(capabilities: SinkCapabilities) -> str:
    guarantee = capabilities.guarantee.value
    return f"{guarantee}; {capabilities.remark}" if capabilities.remark else guarantee
