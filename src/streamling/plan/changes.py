"""Updates and deletes on their way through a pipeline: which nodes have them, and which lose them.

A query that drops an update leaves the row of before the update in a target that keeps one row per key. So does a
query whose key changes with an update. These are warnings: whether such changes occur is known only when rows arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamling.errors import INVALID_VALUE, STALE_ROWS, Caution
from streamling.plan.contract import Discovery, FiltersChanges
from streamling.plan.graph import is_stream
from streamling.plan.planned_node import PlannedNode
from streamling.plan.sql import UNNEST, RowFilter, Statement, carries_changes, condition_filter, key_reads, row_filters
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import SinkOptions, SourceOptions

_FIELD = "when_filtered_out"
_IN_QUERY = f"set '{_FIELD}: delete' to delete these rows, or '{_FIELD}: drop' if they may stay"
_IN_SOURCE = f"filter in a sql transform that sets '{_FIELD}: delete', or '{_FIELD}: drop' if these rows may stay"
_BY_UNNEST = f"set '{_FIELD}: drop' if these rows may stay"


def may_change(
    node: NodeSpec,
    statement: Statement | None,
    inputs: Sequence[PlannedNode],
    discovery: Discovery | None,
) -> bool:
    """Whether a row of the node may be an update or a delete."""
    if node.role is Role.SOURCE:
        found = discovery.carries_changes if discovery is not None else None
        declared = node.options.carries_changes if isinstance(node.options, SourceOptions) else True
        return declared if found is None else found
    if statement is not None:
        return carries_changes(statement, {input_.ref: input_.carries_changes for input_ in inputs})
    return any(input_.carries_changes for input_ in inputs)


def deletes_unmatched(node: NodeSpec) -> bool:
    """Whether updates and deletes that the node's query drops become deletes."""
    return isinstance(node.options, FiltersChanges) and node.options.deletes_unmatched


def change_cautions(nodes: Sequence[PlannedNode], statements: Mapping[NodeSpec, Statement]) -> Iterator[Caution]:
    """Warnings about rows that a sink would keep too long; `nodes` are in dependency order."""
    yield from _Changes(nodes, statements).cautions()


@dataclass
class _Changes:
    nodes: Sequence[PlannedNode]
    statements: Mapping[NodeSpec, Statement]
    streams: dict[str, PlannedNode] = field(init=False)
    origins: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """By stream: the sources that its rows come from."""
    deleted: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """By stream: the sources whose rows may be deletes because they do not match."""

    def __post_init__(self) -> None:
        self.streams = {node.ref: node for node in self.nodes if is_stream(node.spec)}

    def cautions(self) -> Iterator[Caution]:
        for node in self.nodes:
            if node.spec.sound:
                yield from self._of_source(node) if node.spec.role is Role.SOURCE else self._of_reader(node)
            self._follow(node)

    def _of_source(self, node: PlannedNode) -> Iterator[Caution]:
        options = node.spec.options
        place = options.row_filter if isinstance(options, SourceOptions) else None
        if place is None or not node.carries_changes:
            return
        condition, path = place
        locate = node.spec.text_locator(*path)
        found = condition_filter(condition, node.ref, node=node.spec.name, locate=locate)
        if found is not None and not found.is_constant_per_key({node.ref: node.primary_key}):
            yield from self._stale(node, found, _IN_SOURCE)

    def _of_reader(self, node: PlannedNode) -> Iterator[Caution]:
        statement, options = self.statements.get(node.spec), node.spec.options
        if statement is None or not isinstance(options, FiltersChanges):
            return
        if options.deletes_unmatched:
            yield from self._deleting(node, statement)
        elif not options.drops_knowingly:
            lost = [found for found in row_filters(statement) if self._loses(node, found)]
            if lost:
                yield from self._stale(node, lost[0], _BY_UNNEST if lost[0].clause == UNNEST else _IN_QUERY)
        yield from self._deleted_elsewhere(node)

    def _loses(self, node: PlannedNode, found: RowFilter) -> bool:
        """Whether the filter may drop a change."""
        read = [self.streams[ref] for ref in node.inputs if found.table in (None, ref)]
        keys = {input_.ref: input_.primary_key for input_ in read}
        return any(input_.carries_changes for input_ in read) and not found.is_constant_per_key(keys)

    def _stale(self, node: PlannedNode, found: RowFilter, hint: str) -> Iterator[Caution]:
        sinks = self._keyed_sinks(node.ref)
        if not sinks:
            return
        names = ", ".join(f"'{sink.spec.name}'" for sink in sinks)
        keeps = "keeps" if len(sinks) == 1 else "keep"
        if found.clause == "JOIN":
            text = f"its JOIN drops updates and deletes without a match; {names} {keeps} the old rows"
        elif found.clause != UNNEST:
            text = f"its {found.clause} drops updates and deletes that do not match; {names} {keeps} the old rows"
        else:
            text = f"an update may {found.clause} to fewer rows than before; {names} {keeps} the old ones"
        message = f"{node.spec.described()}: {text}"
        yield Caution(STALE_ROWS, message, node=node.spec.name, where=found.where or node.spec.where, hint=hint)

    def _keyed_sinks(self, ref: str) -> list[PlannedNode]:
        """The sinks downstream that keep one row per key, and get changes."""
        downstream = {ref}
        sinks: list[PlannedNode] = []
        for node in self.nodes:
            if not downstream.intersection(node.inputs):
                continue
            options = node.spec.options
            if is_stream(node.spec):
                downstream.add(node.ref)
            elif isinstance(options, SinkOptions) and options.keeps_rows_by_key and node.carries_changes:
                sinks += [node] if node.primary_key or node.columns is None else []
        return sinks

    # Queries that turn rows into deletes

    def _deleting(self, node: PlannedNode, statement: Statement) -> Iterator[Caution]:
        if not statement.filters:
            yield node.spec.caution(INVALID_VALUE, f"'{_FIELD}' has no effect: the query has no WHERE", _FIELD)
        elif not any(self.streams[ref].carries_changes for ref in node.inputs):
            yield node.spec.caution(INVALID_VALUE, f"'{_FIELD}' has no effect: all rows are inserts", _FIELD)
        else:
            yield from self._changing_key(node, statement)

    def _changing_key(self, node: PlannedNode, statement: Statement) -> Iterator[Caution]:
        for ref, columns in key_reads(statement, node.primary_key).items():
            input_ = self.streams[ref]
            others = sorted(columns - set(input_.primary_key))
            if not others or not input_.primary_key:
                continue
            message = (
                f"its primary key is computed from '{others[0]}', which is not in the primary key of "
                f"'{input_.spec.name}': a delete that lacks this column, or an update that changes it, does not "
                "remove the old row"
            )
            yield node.spec.caution(STALE_ROWS, message, "primary_key", hint="build the key from columns of that key")

    def _deleted_elsewhere(self, node: PlannedNode) -> Iterator[Caution]:
        for ref in node.inputs:
            for other in node.inputs:
                if other != ref and self.deleted[ref] & self.origins[other]:
                    first, second = self.streams[ref].spec.name, self.streams[other].spec.name
                    message = (
                        f"a row that does not match in '{first}' is deleted, also if '{second}' still has a row with "
                        "this key"
                    )
                    hint = "let the primary key tell the rows of both inputs apart"
                    yield node.spec.caution(STALE_ROWS, message, "sql", hint=hint)
                    return

    def _follow(self, node: PlannedNode) -> None:
        none = frozenset[str]()
        if node.spec.role is Role.SOURCE:
            self.origins[node.ref], self.deleted[node.ref] = frozenset({node.ref}), none
        elif is_stream(node.spec):
            self.origins[node.ref] = none.union(*(self.origins[ref] for ref in node.inputs))
            deleted = none.union(*(self.deleted[ref] for ref in node.inputs))
            self.deleted[node.ref] = self.origins[node.ref] if deletes_unmatched(node.spec) else deleted
