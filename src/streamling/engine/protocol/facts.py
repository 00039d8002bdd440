"""What is known of a node's running before it runs: where its work happens and what delivery it promises."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.connector import Placement, Sink, Source, kinds
from streamling.plan.planned_node import PlannedNode
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """`delivery` is a sink's guarantee, None for other nodes."""

    runs: str
    delivery: str | None = None


def facts_of(node: PlannedNode, settings: Settings) -> NodeFacts:
    """Builds the connector to ask it; building touches nothing."""
    kind = kinds.kind_of(node.spec)
    if not kind.runs:
        return NodeFacts("not in this version yet")
    if kind.compiled:
        return NodeFacts("in Spark")
    connector = kinds.build(node.spec, settings)
    both = f"on the driver up to {settings.epoch.driver_rows:,} rows an epoch, on the executors beyond"
    if isinstance(connector, Source):
        return NodeFacts(both if connector.capabilities.replayable else "on the driver")
    placed = both if connector.capabilities.placement is Placement.ANY else "on the driver"
    guarantee = connector.capabilities.guarantee.value if isinstance(connector, Sink) else None
    return NodeFacts(placed, guarantee)
