"""The part of an unfinished pipeline that can run: without sinks, without nodes that have problems, and without the
nodes that need them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from streamling.errors import NO_CONSUMERS, NO_KEY, NOTHING_TO_DO, Caution, StreamlingError
from streamling.plan.graph import is_lookup, is_stream
from streamling.plan.pipeline import Draft, Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import NodeSpec, PipelineSpec

# They are about what a finished pipeline needs.
_UNFINISHED = (NO_CONSUMERS, NO_KEY, NOTHING_TO_DO)


@dataclass(frozen=True, slots=True)
class PreviewPlan:
    """What a preview can run, and why it cannot run the rest."""

    plan: Plan
    problems: tuple[StreamlingError, ...] = ()
    cautions: tuple[Caution, ...] = ()
    left_out: Mapping[NodeSpec, str] | None = None
    """The nodes that are not in the plan, each with the reason."""

    @property
    def streams(self) -> tuple[PlannedNode, ...]:
        """The nodes through which rows flow: neither lookups nor dynamic tables."""
        return tuple(node for node in self.plan.nodes if is_stream(node.spec))

    def without(self, node: PlannedNode, reason: str) -> PreviewPlan:
        """The plan without a node that failed, and without the nodes that need it."""
        reasons = _spread(self.plan.nodes, {node.id: reason})
        kept = tuple(other for other in self.plan.nodes if other.id not in reasons)
        left_out = {n.spec: reasons[n.id] for n in self.plan.nodes if n.id in reasons}
        return replace(self, plan=Plan(kept), left_out={**(self.left_out or {}), **left_out})

    def only(self, refs: Collection[str]) -> PreviewPlan:
        """The plan with these nodes and everything that they need. Problems of other nodes are dropped."""
        names = {node.name for node in self.left_out or () if node.ref in refs}
        needed = {node.id for node in self.plan.nodes if node.ref in refs}
        while True:
            more = {other.id for node in self.plan.nodes if node.id in needed for other in _needs(node, self.plan)}
            if more <= needed:
                break
            needed |= more
        nodes = tuple(node for node in self.plan.nodes if node.id in needed)
        names |= {node.spec.name for node in nodes}
        left_out = {node: reason for node, reason in (self.left_out or {}).items() if node.ref in refs}
        # A node may be left out because of one that it needs.
        problems = tuple(p for p in self.problems if left_out or p.node is None or p.node in names)
        cautions = tuple(c for c in self.cautions if c.node is None or c.node in names)
        return PreviewPlan(Plan(nodes), problems, cautions, left_out)


def preview_plan(pipeline: PipelineSpec, draft: Draft) -> PreviewPlan:
    """`pipeline` has no sinks: which nodes are read makes no difference."""
    problems = tuple(p for p in draft.problems if p.condition not in _UNFINISHED)
    faulty: dict[str, str] = {}
    for problem in problems:
        faulty.setdefault(problem.node or "", problem.message)
    reasons = {n.id: faulty[n.spec.name] for n in draft.nodes if n.spec.name in faulty}
    planned = {node.spec.ref for node in draft.nodes if is_stream(node.spec)}
    for node in draft.nodes:
        for ref in node.inputs:
            if ref not in planned:
                reasons.setdefault(node.id, f"it reads '{ref}', which cannot be planned")
    reasons = _spread(draft.nodes, reasons)
    unknown = [n for n in draft.nodes if n.columns is None and (is_stream(n.spec) or is_lookup(n.spec))]
    # Without its query a table would be empty, and queries would give rows that they do not give.
    unknown += [n for n in draft.nodes if n.query is None and not is_stream(n.spec) and n.spec.text("sql")]
    reasons = _spread(draft.nodes, {n.id: "its columns are not known" for n in unknown} | reasons)
    left_out = {node.spec: reasons[node.id] for node in draft.nodes if node.id in reasons}
    known = {node.spec for node in draft.nodes}
    for spec in pipeline.nodes:
        if spec not in known:
            left_out[spec] = faulty.get(spec.name, "it reads nodes that read it: a cycle")
    plan = Plan(tuple(node for node in draft.nodes if node.id not in reasons))
    cautions = tuple(c for c in draft.cautions if c.condition not in _UNFINISHED)
    return PreviewPlan(plan, problems, cautions, left_out)


def _spread(nodes: Collection[PlannedNode], reasons: Mapping[str, str]) -> dict[str, str]:
    """The reasons with those of the nodes that need one of the nodes left out, directly or not."""
    spread = dict(reasons)
    everything = Plan(tuple(nodes))
    while True:
        more = {
            node.id: f"it needs '{needed.spec.name}', which is left out"
            for node in nodes
            if node.id not in spread
            for needed in _needs(node, everything)
            if needed.id in spread
        }
        if not more:
            return spread
        spread |= more


def _needs(node: PlannedNode, plan: Plan) -> list[PlannedNode]:
    """The nodes it reads, the lookups it joins and the dynamic tables it asks."""
    refs = {*node.inputs, *node.lookups}
    streams = [other for other in plan.nodes if other.ref in refs and other.id == other.ref]
    return [*streams, *(table for table in plan.dynamic_tables if table.ref in node.asks)]
