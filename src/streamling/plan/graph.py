"""Who reads whom, and in which order nodes can be computed.

Nodes with problems of their own take part as far as they can be read, so that one mistake does not hide the
next and does not bring about others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamling.errors import (
    CYCLE,
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

# Names listed in a message; more would hide what it says.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class Graph:
    """The shape of a pipeline.

    inputs       what each transform and sink reads, as reference names of existing nodes
    statements   the queries that parse
    order        transforms, each behind what it reads; those on a circle are not in it
    problems     everything wrong between the nodes
    """

    inputs: Mapping[NodeSpec, tuple[str, ...]]
    statements: Mapping[NodeSpec, Statement]
    order: tuple[NodeSpec, ...]
    problems: tuple[StreamlingError, ...]


def make_graph(pipeline: PipelineSpec) -> Graph:
    builder = _Builder(pipeline)
    statements = dict(builder.statements())
    inputs = {node: tuple(builder.inputs(node, statements.get(node))) for node in builder.readers}
    order = builder.order(inputs)
    builder.check_consumers(inputs, statements)
    return Graph(inputs, statements, tuple(order), tuple(builder.problems))


def problems_of(error: StreamlingError, node: NodeSpec, *path: str) -> Iterator[StreamlingError]:
    """The problems in an error, each with the node in its message and a place, if only that of the field."""
    for problem in error.problems if isinstance(error, InvalidPipeline) else (error,):
        if not problem.message.startswith(node.described()):
            problem.message = f"{node.described()}: {problem.message}"
            problem.args = (problem.message,)
        problem.node = problem.node or node.name
        problem.where = problem.where or node.locate(*path)
        yield problem


def is_stream(node: NodeSpec) -> bool:
    """Whether other nodes can read it; kinds with a namespace of their own cannot be read."""
    return node.role is not Role.SINK and _namespace(node) == NodeOptions.namespace


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
        self._others = {n.ref: n for n in reversed(self.readers) if not is_stream(n)}
        self._meant: set[str] = set()
        # A section that is missing or misspelt takes all its nodes with it: who they are and read is anybody's guess.
        self._complete = all(problem.node is not None for problem in pipeline.problems)
        self.problems: list[StreamlingError] = []

    def statements(self) -> Iterator[tuple[NodeSpec, Statement]]:
        for node in self._transforms:
            sql = node.text("sql") if reads_by_query(node) else None
            if sql is None or not sql.strip():
                continue
            try:
                only = None if is_stream(node) else PLAIN_ONLY
                yield node, parse(sql, node=node.name, locate=node.text_locator("sql"), only=only)
            except StreamlingError as error:
                self.problems.extend(problems_of(error, node, "sql"))

    def inputs(self, node: NodeSpec, statement: Statement | None) -> Iterator[str]:
        """What the node reads; names nobody has are reported and left out."""
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
            what = "a sink" if other.role is Role.SINK else "a dynamic table"
            if statement is not None:
                message = f"unsupported SQL: '{written}' is {what} and cannot be read as a table"
                return _placed(node.error(SQL_UNSUPPORTED, message, "sql"), where)
            hint = f"'{written}' is {what}; only sources and transforms that give rows can be read"
        else:
            names = {ref: n.name for ref, n in self._streams.items() if n is not node}
            meant = nearest(written, names)
            self._meant.update((meant,) if meant else ())
            known = ", ".join(sorted(names.values())) or "none"
            hint = f"did you mean '{names[meant]}'?" if meant else f"nodes that can be read: {known}"
        what = "table" if statement else "plan" if node.role is Role.SINK else "source"
        return _placed(node.error(NODE_NOT_FOUND, f"{what} '{written}' not found", "sql", hint=hint), where)

    def order(self, inputs: Mapping[NodeSpec, tuple[str, ...]]) -> list[NodeSpec]:
        """Ties stand by name, nodes that are no streams first. Circles are reported."""
        waiting = sorted(self._transforms, key=lambda n: (is_stream(n), n.ref))
        order: list[NodeSpec] = []
        while waiting:
            # Of two nodes with one name the first is the one that is read.
            missing = {n.ref for n in waiting if self._streams.get(n.ref) is n}
            ready = [n for n in waiting if not any(ref in missing for ref in inputs[n])]
            if not ready:
                self._report_circles(waiting, inputs)
                break
            order.extend(ready)
            waiting = [n for n in waiting if n not in ready]
        return order

    def _report_circles(self, waiting: Iterable[NodeSpec], inputs: Mapping[NodeSpec, tuple[str, ...]]) -> None:
        edges = {n.ref: inputs[n] for n in waiting if self._streams.get(n.ref) is n}
        reach = {ref: _reached(ref, edges) for ref in edges}
        told: set[str] = set()
        for node in waiting:
            if node.ref in told or self._streams.get(node.ref) is not node:
                continue
            circle = [n for n in waiting if n.ref in reach[node.ref] and node.ref in reach.get(n.ref, ())]
            if not circle:
                continue
            told.update(n.ref for n in circle)
            names = ", ".join(f"'{n.name}'" for n in circle[:_NAMED])
            names += f" and {len(circle) - _NAMED} more" if circle[_NAMED:] else ""
            message = f"the transforms {names} read each other in a circle" if circle[1:] else f"{names} reads itself"
            self.problems.append(UserError(CYCLE, message, node=circle[0].name, where=circle[0].where))

    def _listed(self) -> Iterator[str]:
        """The names in a `from` that is a list: not accepted, but no node of them is unread."""
        for node in self.readers:
            names = node.tree.get("from")
            if isinstance(names, ListNode):
                yield from (str(name).lower() for name in names.plain())

    def check_consumers(
        self, inputs: Mapping[NodeSpec, tuple[str, ...]], statements: Mapping[NodeSpec, Statement]
    ) -> None:
        # Who is most likely meant by a misspelt name is not unread as well.
        read = {ref for refs in inputs.values() for ref in refs} | self._meant | set(self._listed())
        # A query that does not parse reads at most the nodes its text mentions.
        broken = [n.text("sql") or "" for n in self._transforms if reads_by_query(n) and n not in statements]
        unread = [
            node
            for ref, node in sorted(self._streams.items())
            if ref not in read and not any(_mentions(text, ref) for text in broken)
        ]
        # Each node that does not say what it reads may read one of them; only more than that are certainly unread.
        blind = sum(1 for n in self.readers if not n.sound and not n.text("sql" if reads_by_query(n) else "from"))
        if self._complete and len(unread) > blind:
            self.problems.extend(_unread(node) for node in unread)


def _unread(node: NodeSpec) -> UserError:
    hint = "read it in a transform or sink, or remove it"
    message = f"{node.described()} has no consumers"
    return UserError(NO_CONSUMERS, message, node=node.name, where=node.where, hint=hint)


def _placed(problem: UserError, where: Where | None) -> UserError:
    problem.where = where or problem.where
    return problem


def _mentions(sql: str, ref: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(ref)}(?![\w.])", re.sub(r'["`]', "", sql.lower())) is not None


def _reached(start: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    seen: set[str] = set()
    stack = [start]
    while stack:
        for ref in edges.get(stack.pop(), ()):
            if ref not in seen:
                seen.add(ref)
                stack.append(ref)
    return seen
