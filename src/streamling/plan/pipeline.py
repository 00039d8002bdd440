"""From the pipeline file to a plan: who reads whom, in which order, with which columns and keys.

Every check that needs no data and no outside system happens here, and all problems are reported at once: a
node whose own description is wrong does not hide what is wrong elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from streamling.errors import (
    CYCLE,
    INVALID_VALUE,
    NO_CONSUMERS,
    NODE_NOT_FOUND,
    PRIMARY_KEY,
    InvalidPipeline,
    StreamlingError,
    UserError,
)
from streamling.plan.sql import Query, Statement, compile_query, parse
from streamling.plan.types import Schema
from streamling.spec.options import OnError
from streamling.spec.pipeline import NodeSpec, PipelineSpec, Role


@runtime_checkable
class KnowsSchema(Protocol):
    """Options of a source that can tell its columns without touching anything."""

    def output_schema(self, node: NodeSpec) -> Schema: ...


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node and all that is known of it before a row is read."""

    spec: NodeSpec
    inputs: tuple[str, ...]
    schema: Schema
    """What it gives; for a sink, what it gets."""
    primary_key: tuple[str, ...]
    view: str
    """The name its rows have in Spark."""
    query: Query | None = None

    @property
    def ref(self) -> str:
        return self.spec.ref


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes in dependency order."""

    nodes: tuple[PlannedNode, ...]
    warnings: tuple[str, ...] = ()

    def role(self, role: Role) -> tuple[PlannedNode, ...]:
        return tuple(n for n in self.nodes if n.spec.role is role)

    @property
    def sources(self) -> tuple[PlannedNode, ...]:
        return self.role(Role.SOURCE)

    @property
    def transforms(self) -> tuple[PlannedNode, ...]:
        return self.role(Role.TRANSFORM)

    @property
    def sinks(self) -> tuple[PlannedNode, ...]:
        return self.role(Role.SINK)

    def node(self, ref: str) -> PlannedNode:
        return next(n for n in self.nodes if n.ref == ref)

    def consumers(self, ref: str) -> tuple[PlannedNode, ...]:
        return tuple(n for n in self.nodes if ref in n.inputs)

    @property
    def fingerprint(self) -> str:
        """Changes when rows of one input could come out differently."""
        texts = [
            f"{n.ref}|{n.inputs}|{n.schema}|{n.query.text if n.query else n.spec.options!r}"
            for n in (*self.sources, *self.transforms)
        ]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def make_plan(pipeline: PipelineSpec, *, enforce_primary_keys: bool = False) -> Plan:
    """The plan, or InvalidPipeline with every problem found."""
    return _Planner(pipeline, enforce_primary_keys).plan()


@dataclass
class _Planner:
    pipeline: PipelineSpec
    enforce_primary_keys: bool
    problems: list[StreamlingError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def plan(self) -> Plan:
        readable = {n.ref: n for n in (*self.pipeline.sources, *self.pipeline.transforms)}
        statements = dict(self._statements())
        inputs = self._inputs(readable, statements)
        order = self._order(inputs)
        self._check_consumers(readable, inputs, statements)
        planned: dict[str, PlannedNode] = {}
        for node in (*self.pipeline.sources, *order, *self.pipeline.sinks):
            self._plan_node(node, inputs.get(node.ref, ()), statements.get(node.ref), planned)
        if self.problems:
            raise InvalidPipeline(
                sorted(self.problems, key=lambda p: (p.where.line, p.where.column) if p.where else (0, 0))
            )
        return Plan(tuple(planned.values()), tuple(self.warnings))

    def _statements(self) -> Iterator[tuple[str, Statement]]:
        for node in self.pipeline.transforms:
            sql = getattr(node.options, "sql", None)
            if isinstance(sql, str):
                try:
                    yield node.ref, parse(sql, node=node.name, locate=node.text_locator("sql"))
                except StreamlingError as error:
                    self._add(error)

    def _inputs(
        self, readable: Mapping[str, NodeSpec], statements: Mapping[str, Statement]
    ) -> dict[str, tuple[str, ...]]:
        """What each transform and sink reads; names nobody has are reported and left out."""
        inputs: dict[str, tuple[str, ...]] = {}
        for node in (*self.pipeline.transforms, *self.pipeline.sinks):
            from_ = getattr(node.options, "from_", None)
            if isinstance(from_, str):
                wanted, what = [from_.lower()], "plan" if node.role is Role.SINK else "source"
                where, shown = node.locate("from"), from_
            else:
                statement = statements.get(node.ref)
                wanted, what = list(statement.tables) if statement else [], "table"
                where, shown = node.locate("sql"), ""
            for ref in wanted:
                if ref not in readable:
                    known = ", ".join(sorted(n.name for n in readable.values()))
                    self._add(
                        UserError(
                            NODE_NOT_FOUND,
                            f"{node.described()}: {what} '{shown or ref}' not found",
                            node=node.name,
                            where=where,
                            hint=f"nodes that can be read: {known}",
                        )
                    )
            inputs[node.ref] = tuple(ref for ref in wanted if ref in readable)
        return inputs

    def _order(self, inputs: Mapping[str, tuple[str, ...]]) -> list[NodeSpec]:
        """Transforms, each behind what it reads; ties by name. What is on a circle is reported and left out."""
        waiting = {n.ref: n for n in sorted(self.pipeline.transforms, key=lambda n: n.ref)}
        order: list[NodeSpec] = []
        while waiting:
            ready = [n for n in waiting.values() if not any(i in waiting for i in inputs.get(n.ref, ()))]
            if not ready:
                circle = [n for n in waiting.values() if _reaches(n.ref, n.ref, inputs)]
                names = ", ".join(f"'{n.name}'" for n in circle)
                self._add(
                    UserError(CYCLE, f"the transforms {names} read each other in a circle", where=circle[0].where)
                )
                break
            for node in ready:
                order.append(waiting.pop(node.ref))
        return order

    def _check_consumers(
        self,
        readable: Mapping[str, NodeSpec],
        inputs: Mapping[str, tuple[str, ...]],
        statements: Mapping[str, Statement],
    ) -> None:
        read = {ref for refs in inputs.values() for ref in refs}
        unread = sorted(ref for ref in readable if ref not in read)
        # A query that does not parse may read any of them: saying "unread" would be a guess.
        if len(statements) < sum(1 for n in self.pipeline.transforms if hasattr(n.options, "sql")):
            return
        for ref in unread:
            node = readable[ref]
            self._add(
                UserError(
                    NO_CONSUMERS,
                    f"{node.described()} has no consumers",
                    node=node.name,
                    where=node.where,
                    hint="read it in a transform or sink, or remove it",
                )
            )

    def _plan_node(
        self, node: NodeSpec, inputs: tuple[str, ...], statement: Statement | None, planned: dict[str, PlannedNode]
    ) -> None:
        if node.options.on_error is not OnError.FAIL:
            self._add(
                UserError(
                    INVALID_VALUE,
                    f"{node.described()}: on_error '{node.options.on_error.value}' is not available yet",
                    node=node.name,
                    where=node.locate("on_error"),
                )
            )
        schema, query, view = None, None, f"node_{len(planned)}"
        try:
            if statement is not None:
                missing = [i for i in statement.tables if i not in planned]
                if missing:
                    return
                schemas = {i: planned[i].schema for i in statement.tables}
                query = compile_query(statement, schemas, {i: planned[i].view for i in statement.tables})
                schema = query.schema
            elif isinstance(node.options, KnowsSchema):
                schema = node.options.output_schema(node)
            elif len(inputs) == 1 and inputs[0] in planned:
                schema = planned[inputs[0]].schema
        except StreamlingError as error:
            self._add(error)
        if schema is None:
            return
        key = self._key(node, schema, inputs, planned)
        planned[node.ref] = PlannedNode(node, inputs, schema, key, view, query)

    def _key(
        self, node: NodeSpec, schema: Schema, inputs: tuple[str, ...], planned: Mapping[str, PlannedNode]
    ) -> tuple[str, ...]:
        """The node's own key, else that of the nearest node upstream that has one."""
        own: tuple[str, ...] | None = getattr(node.options, "primary_key", None)
        if own:
            missing = [column for column in own if column not in schema]
            if missing:
                self._add(
                    UserError(
                        PRIMARY_KEY,
                        f"Primary key validation failed for node '{node.name}': columns [{', '.join(missing)}] "
                        f"not found in schema. Available columns: [{', '.join(schema.names)}]",
                        node=node.name,
                        where=node.locate("primary_key"),
                    )
                )
            return own
        inherited = planned[inputs[0]].primary_key if inputs and inputs[0] in planned else ()
        if not inherited or any(column not in schema for column in inherited):
            text = f"{node.described()} has no primary key and none upstream"
            if self.enforce_primary_keys:
                self._add(UserError(PRIMARY_KEY, text, node=node.name, where=node.where, hint="set primary_key"))
            else:
                self.warnings.append(text)
            return ()
        return inherited

    def _add(self, error: StreamlingError) -> None:
        self.problems.extend(error.problems if isinstance(error, InvalidPipeline) else (error,))


def _reaches(start: str, goal: str, inputs: Mapping[str, Iterable[str]]) -> bool:
    seen: set[str] = set()
    stack = list(inputs.get(start, ()))
    while stack:
        ref = stack.pop()
        if ref == goal:
            return True
        if ref not in seen:
            seen.add(ref)
            stack.extend(inputs.get(ref, ()))
    return False
