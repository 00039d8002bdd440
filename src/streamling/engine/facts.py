"""What is known of a node's running before it runs: where its work happens and what delivery it promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from streamling.connector import Placement, Sink, kinds
from streamling.plan.nodes import PlannedNode
from streamling.spec.pipeline import Role
from streamling.spec.plugin_options import PluginOptions
from streamling.spec.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """`delivery` is a sink's guarantee, None for other nodes."""

    runs: str
    delivery: str | None = None


def facts_of(node: PlannedNode, settings: Settings) -> NodeFacts:
    """Builds sinks to ask them; building touches nothing."""
    kind = kinds.kind_of(node.spec)
    if not kind.runs:
        return NodeFacts("not in this version yet")
    both = f"on the driver up to {settings.epoch.driver_rows:,} rows an epoch, on the executors beyond"
    if node.spec.role is Role.SOURCE:
        return NodeFacts("on the driver" if isinstance(node.spec.options, PluginOptions) else both)
    if node.spec.role is Role.TRANSFORM:
        return NodeFacts("in Spark" if kind.compiled else "on the driver")
    capabilities = cast(Sink, kinds.build(node.spec, settings)).capabilities
    return NodeFacts(
        "on the driver" if capabilities.placement is Placement.DRIVER else both, capabilities.guarantee.value
    )
