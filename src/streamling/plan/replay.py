"""The part of a plan that dead letters pass when they are replayed: from the node that rejected them to the sinks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import NodeOptions, OnError

# Node names do not begin with two underscores, and state keys that do are the engine's.
LETTERS_PREFIX = "__letters:"
_EMPTY_PREFIX = "__empty:"


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A plan in which dead letters enter instead of the rows of sources."""

    plan: Plan
    entry: PlannedNode
    """The source of letters."""
    node: PlannedNode
    """The node that rejected the rows; `entry` itself if that was a source."""
    columns: Schema
    """The columns that a row of a letter must have."""
    empty: tuple[PlannedNode, ...]
    """Sources without rows, in place of the other inputs."""


def replay_plan(plan: Plan, node: PlannedNode, input_: str | None) -> ReplayPlan:
    """The plan for letters of a node: its input, or the node itself if it is a source, is replaced by the letters.

    `input_`: the node that the rows came from. All nodes downstream are in the plan; their other inputs have no rows.
    """
    return _Reduction(plan, node, input_).run()


class _Reduction:
    def __init__(self, plan: Plan, node: PlannedNode, input_: str | None) -> None:
        self._plan = plan
        self._node = node
        self._replaced = node if node.spec.role is Role.SOURCE else plan.node(input_ or node.inputs[0])
        self._entry = _source_of_letters(node, self._replaced)
        self._empty: dict[str, PlannedNode] = {}
        self._kept: dict[str, PlannedNode] = {}

    def run(self) -> ReplayPlan:
        refs = {self._node.ref}
        downstream: list[PlannedNode] = []
        for node in self._plan.nodes:
            is_entry = node.id == self._node.id
            if not (is_entry or refs.intersection(node.inputs)):
                continue
            if node.id == node.ref:  # a dynamic table is not read by the nodes after it
                refs.add(node.ref)
            if node.spec.role is not Role.SOURCE:
                downstream.append(node)
        nodes = [self._reconnect(node, refs) for node in downstream]
        nodes = [*self._tables(downstream), *nodes]
        rejecting = next((node for node in nodes if node.id == self._node.id), self._entry)
        empty = tuple(self._empty.values())
        joined = {ref for node in nodes for ref in node.lookups}
        lookups = [node for node in self._plan.lookups if node.ref in joined]
        plan = Plan((self._entry, *empty, *lookups, *nodes))
        return ReplayPlan(plan, self._entry, rejecting, self._letter_columns(), empty)

    def _tables(self, downstream: list[PlannedNode]) -> list[PlannedNode]:
        """The dynamic tables that only nodes upstream of the letters fill: letters add nothing to them."""
        asked = {ref for node in downstream for ref in node.asks} - {n.ref for n in downstream if n.id != n.ref}
        tables = [table for table in self._plan.dynamic_tables if table.ref in asked]
        return [replace(table, inputs=(), query=None, asks=()) for table in tables]

    def _reconnect(self, node: PlannedNode, refs: set[str]) -> PlannedNode:
        is_entry = node.id == self._node.id
        inputs = tuple(self._input(ref, refs, is_entry=is_entry) for ref in node.inputs)
        return replace(node, inputs=inputs, spec=_with_letters(node.spec) if is_entry else node.spec)

    def _input(self, ref: str, refs: set[str], *, is_entry: bool) -> str:
        enters = is_entry if self._node.spec.role is not Role.SOURCE else True
        if enters and ref == self._replaced.ref:
            return self._entry.ref
        if ref in refs and not is_entry:
            return ref
        if ref not in self._empty:
            other = self._plan.node(ref)
            spec = replace(other.spec, role=Role.SOURCE, ref=f"{_EMPTY_PREFIX}{ref}", options=_letter_options())
            self._empty[ref] = replace(other, spec=spec, inputs=(), query=None, asks=(), lookups=())
        return self._empty[ref].ref

    def _letter_columns(self) -> Schema:
        query = self._node.query
        if query is None or self._node.spec.role is Role.SOURCE:
            return self._replaced.schema
        needed = {*query.reads[self._replaced.ref], OPERATION_COLUMN}
        return Schema(tuple(field for field in self._replaced.schema if field.name in needed))


def _source_of_letters(node: PlannedNode, replaced: PlannedNode) -> PlannedNode:
    ref = f"{LETTERS_PREFIX}{node.ref}"
    if len(node.inputs) > 1:
        ref += f":{replaced.ref}"
    name = f"letters of {node.spec.name}"
    spec = replace(replaced.spec, role=Role.SOURCE, name=name, ref=ref, type="dead letter", options=_letter_options())
    return replace(replaced, spec=spec, inputs=(), query=None, asks=(), width=1, lookups=())


def _letter_options() -> NodeOptions:
    return NodeOptions.model_construct(type="dead letter", on_error=OnError.DEAD_LETTER)


def _with_letters(spec: NodeSpec) -> NodeSpec:
    """The rows that the node rejects again stay letters, whatever its `on_error` is now, and however many they are."""
    destination = spec.options.dead_letter
    unlimited = destination.model_copy(update={"max": None}) if destination is not None else None
    options = spec.options.model_copy(update={"on_error": OnError.DEAD_LETTER, "dead_letter": unlimited})
    return replace(spec, options=options)
