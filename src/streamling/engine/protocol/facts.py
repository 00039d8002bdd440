"""What is known about a node before it runs: where it runs, and a sink's delivery guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamling.connector import Lookup, Placement, Sink, SinkCapabilities, Source, kinds
from streamling.connector.table import TableBackend
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """`delivery` is a sink's guarantee, with its remark; None for other nodes."""

    runs: str
    delivery: str | None = None


def facts_of(node: PlannedNode, settings: Settings) -> NodeFacts:
    """Builds the connector to get its capabilities; building one has no effect outside."""
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
        return NodeFacts(both if connector.capabilities.replayable else "on the driver")
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


def _delivery(capabilities: SinkCapabilities) -> str:
    guarantee = capabilities.guarantee.value
    return f"{guarantee}; {capabilities.remark}" if capabilities.remark else guarantee
