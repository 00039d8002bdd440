"""The graph of a pipeline: what each node reads, and in which order nodes can be computed.

Nodes with problems take part as far as they are readable, so that one mistake neither hides others nor causes
further messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamling.errors import (
    CYCLE,
    DYNAMIC_TABLE,
    NO_CONSUMERS,
    NODE_NOT_FOUND,
    SQL_UNSUPPORTED,
    InvalidPipeline,
    StreamlingError,
    UserError,
    Where,
)
from streamling.plan.sql import Statement, parse
from streamling.spec.faults import nearest
from streamling.spec.pipeline import NodeSpec, PipelineSpec, Role
from streamling.spec.pipeline.options import NodeOptions
from streamling.spec.yaml import ListNode

PLAIN_ONLY = "only Projection and Filter SQL queries are supported for dynamic tables"

# Number of names that a message lists.
_LISTED = 10


@dataclass(frozen=True, slots=True)
class Graph:
    """The edges and the order of the nodes of a pipeline.

    inputs       what each transform and sink reads, as reference names of existing nodes
    statements   the queries that parse
    order        transforms, each after the nodes it reads, lookups first; those in a cycle are not in it
    problems     all problems with the edges between nodes
    """

    inputs: Mapping[NodeSpec, tuple[str, ...]]
    statements: Mapping[NodeSpec, Statement]
    order: tuple[NodeSpec, ...]
    problems: tuple[StreamlingError, ...]


def make_graph(pipeline: PipelineSpec) -> Graph:
    builder = _Builder(pipeline)
    statements = dict(builder.statements())
    inputs = {node: tuple(builder.inputs(node, statements.get(node))) for node in builder.readers}
    order = builder.order(inputs, statements)
    builder.check_consumers(inputs, statements)
    return Graph(inputs, statements, tuple(order), tuple(builder.problems))


def problems_of(error: StreamlingError, node: NodeSpec, *path: str) -> Iterator[StreamlingError]:
    """The problems in an error, each with the node in its message and a position, at least that of the field."""
    for problem in error.problems if isinstance(error, InvalidPipeline) else (error,):
        if not problem.message.startswith(node.described()):
            problem.message = f"{node.described()}: {problem.message}"
            problem.args = (problem.message,)
        problem.node = problem.node or node.name
        problem.where = problem.where or node.locate(*path)
        yield problem


def is_stream(node: NodeSpec) -> bool:
    """Whether other nodes can read it; neither nodes in a namespace of their own (dynamic tables) nor lookups can."""
    return node.role is not Role.SINK and _namespace(node) == NodeOptions.namespace and not is_lookup(node)


def is_lookup(node: NodeSpec) -> bool:
    """Whether queries join it."""
    return node.model is not None and node.model.joined


def reads_by_query(node: NodeSpec) -> bool:
    return node.model is not None and node.model.reads_by_query


def _namespace(node: NodeSpec) -> str:
    return node.model.namespace if node.model else NodeOptions.namespace


class _Builder:
    def __init__(self, pipeline: PipelineSpec) -> None:
        self._transforms = pipeline.transforms
        self.readers = (*pipeline.transforms, *pipeline.sinks)
        streams = [n for n in (*pipeline.sources, *pipeline.transforms) if is_stream(n)]
        self._streams = {n.ref: n for n in reversed(streams)}
        self._lookups = {n.ref: n for n in reversed(pipeline.transforms) if is_lookup(n)}
        self._others = {n.ref: n for n in reversed(self.readers) if not is_stream(n)}
        self._suggested: set[str] = set()
        # The nodes of a missing or misspelt section, and what they read, are not known.
        self._complete = all(problem.node is not None for problem in pipeline.problems)
        self.problems: list[StreamlingError] = []

    def statements(self) -> Iterator[tuple[NodeSpec, Statement]]:
        for node in self._transforms:
            sql = node.text("sql") if reads_by_query(node) else None
            if sql is None or not sql.strip():
                continue
            try:
                only, lookups = (None, self._lookups) if is_stream(node) else (PLAIN_ONLY, ())
                locate = node.text_locator("sql")
                yield node, parse(sql, node=node.name, locate=locate, only=only, lookups=lookups)
            except StreamlingError as error:
                self.problems.extend(problems_of(error, node, "sql"))

    def inputs(self, node: NodeSpec, statement: Statement | None) -> Iterator[str]:
        """What the node reads; names that no node has are reported and left out."""
        if reads_by_query(node):
            names = [(ref, ref) for ref in statement.tables] if statement else []
        else:
            from_ = node.text("from")
            names = [(from_.lower(), from_)] if from_ else []
        for ref, written in names:
            if ref in self._streams:
                yield ref
            elif self._complete:
                self.problems.append(self._not_readable(node, ref, written, statement))

    def _not_readable(self, node: NodeSpec, ref: str, written: str, statement: Statement | None) -> UserError:
        where = statement.place_of(ref) if statement else node.locate("from")
        other = self._others.get(ref)
        if other is not None:
            what = "a sink" if other.role is Role.SINK else "a lookup" if is_lookup(other) else "a dynamic table"
            if statement is not None:
                message = f"unsupported SQL: '{written}' is {what} and cannot be read as a table"
                return _with_position(node.error(SQL_UNSUPPORTED, message, "sql"), where)
            message = f"'{written}' is {what} and cannot be read"
            hint = "only sources and transforms that give rows can be read"
            hint = "join it in a sql transform" if is_lookup(other) else hint
        else:
            message = f"there is no source or transform named '{written}'"
            names = {ref: n.name for ref, n in self._streams.items() if n is not node}
            suggestion = nearest(written, names)
            self._suggested.update((suggestion,) if suggestion else ())
            known = ", ".join(sorted(names.values())) or "none"
            hint = f"did you mean '{names[suggestion]}'?" if suggestion else f"nodes that can be read: {known}"
        problem = node.error(NODE_NOT_FOUND, message, "sql", hint=hint)
        # Tools that read the report of `--validate` look for these words.
        what = "table" if statement else "plan" if node.role is Role.SINK else "source"
        problem.context = f"{node.described()}: {what} '{written}' not found"
        return _with_position(problem, where)

    def order(
        self, inputs: Mapping[NodeSpec, tuple[str, ...]], statements: Mapping[NodeSpec, Statement]
    ) -> list[NodeSpec]:
        """The transforms in dependency order; ties by name, dynamic tables and lookups first. Cycles are reported."""
        waiting = sorted(self._transforms, key=lambda n: (is_stream(n), n.ref))
        order: list[NodeSpec] = []
        while waiting:
            # If two nodes have the same name, other nodes read the first.
            missing = {n.ref for n in waiting if self._streams.get(n.ref) is n}
            readable = [n for n in waiting if not any(ref in missing for ref in inputs[n])]
            if not readable:
                self._report_cycles(waiting, inputs)
                break
            tables = [n for n in waiting if not is_stream(n) and inputs[n]]
            ready = [n for n in readable if not _tables_first(n, statements.get(n), tables)]
            if not ready:
                self.problems.extend(_fills_itself(n, _tables_first(n, statements[n], tables)[0]) for n in readable)
                ready = readable
            order.extend(ready)
            waiting = [n for n in waiting if n not in ready]
        return order

    def _report_cycles(self, waiting: Iterable[NodeSpec], inputs: Mapping[NodeSpec, tuple[str, ...]]) -> None:
        edges = {n.ref: inputs[n] for n in waiting if self._streams.get(n.ref) is n}
        reachable = {ref: _reachable(ref, edges) for ref in edges}
        reported: set[str] = set()
        for node in waiting:
            if node.ref in reported or self._streams.get(node.ref) is not node:
                continue
            cycle = [n for n in waiting if n.ref in reachable[node.ref] and node.ref in reachable.get(n.ref, ())]
            if not cycle:
                continue
            reported.update(n.ref for n in cycle)
            names = ", ".join(f"'{n.name}'" for n in cycle[:_LISTED])
            names += f" and {len(cycle) - _LISTED} more" if cycle[_LISTED:] else ""
            message = f"the transforms {names} read each other in a cycle" if cycle[1:] else f"{names} reads itself"
            self.problems.append(UserError(CYCLE, message, node=cycle[0].name, where=cycle[0].where))

    def _names_in_lists(self) -> Iterator[str]:
        """The names in a `from` that is a list: a list is an error, but its nodes do not count as unread."""
        for node in self.readers:
            names = node.tree.get("from")
            if isinstance(names, ListNode):
                yield from (str(name).lower() for name in names.plain())

    def check_consumers(
        self, inputs: Mapping[NodeSpec, tuple[str, ...]], statements: Mapping[NodeSpec, Statement]
    ) -> None:
        # A node that was suggested for a misspelt name does not count as unread.
        read = {ref for refs in inputs.values() for ref in refs} | self._suggested | set(self._names_in_lists())
        # A query that does not parse reads at most the nodes that its text mentions.
        broken = [n.text("sql") or "" for n in self._transforms if reads_by_query(n) and n not in statements]
        unread = [
            node
            for ref, node in sorted(self._streams.items())
            if ref not in read and not any(_mentions(text, ref) for text in broken)
        ]
        # Each reader whose input is not known may read one of them; only if there are more, some are surely unread.
        unclear = sum(1 for n in self.readers if not n.sound and not n.text("sql" if reads_by_query(n) else "from"))
        if self._complete and len(unread) > unclear:
            self.problems.extend(_unread(node) for node in unread)


def _tables_first(node: NodeSpec, statement: Statement | None, tables: Iterable[NodeSpec]) -> list[NodeSpec]:
    """Those of the filled tables that must have the values of an epoch before the node looks values up in them."""
    asked = {check.table for check in statement.checked_tables} if statement is not None else set()
    return [t for t in tables if t.ref in asked and (not is_stream(node) or t.text("populate") != "after")]


def _fills_itself(node: NodeSpec, table: NodeSpec) -> UserError:
    message = f"it looks values up in the dynamic table '{table.name}', which is filled from its own rows"
    hint = "fill the table from the input of the query, or set 'populate: after' and 'same_input: false' on the table"
    return node.error(DYNAMIC_TABLE, message, "sql", hint=hint)


def _unread(node: NodeSpec) -> UserError:
    hint = "read it in a transform or sink, or remove it"
    message = f"{node.described()} has no consumers"
    return UserError(NO_CONSUMERS, message, node=node.name, where=node.where, hint=hint)


def _with_position(problem: UserError, where: Where | None) -> UserError:
    problem.where = where or problem.where
    return problem


def _mentions(sql: str, ref: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(ref)}(?![\w.])", re.sub(r'["`]', "", sql.lower())) is not None


def _reachable(start: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    seen: set[str] = set()
    stack = [start]
    while stack:
        for ref in edges.get(stack.pop(), ()):
            if ref not in seen:
                seen.add(ref)
                stack.append(ref)
    return seen
