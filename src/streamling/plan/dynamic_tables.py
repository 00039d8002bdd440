"""Rules about dynamic tables: the queries that look values up in them, and the queries that fill them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from streamling.errors import DYNAMIC_TABLE, Caution, UserError
from streamling.plan.contract import Finding
from streamling.plan.graph import PLAIN_ONLY, Graph, is_lookup, is_stream
from streamling.plan.sql import DynamicCheck, Query, Statement
from streamling.plan.types import OPERATION_COLUMN, STRING, Field, Schema
from streamling.spec.faults import did_you_mean
from streamling.spec.pipeline import NodeSpec, PipelineSpec


@runtime_checkable
class DynamicTable(Protocol):
    """Options of a node that stores texts which queries can look up."""

    column: str
    """The column that holds the texts."""
    same_input: bool
    """Whether only queries that read the input which fills the table may look values up in it."""

    @property
    def filled_first(self) -> bool:
        """Whether the texts of a row are in the table before the row is tested."""

    @property
    def fetched_columns(self) -> Schema:
        """The columns, besides the texts, whose values queries can fetch."""


def table_findings(pipeline: PipelineSpec, graph: Graph) -> Iterator[Finding]:
    """Problems and warnings about the calls that look values up."""
    tables = {node.ref: node for node in pipeline.transforms if not (is_stream(node) or is_lookup(node))}
    for node, statement in graph.statements.items():
        for check in statement.checked_tables:
            yield from _call_findings(node, check, tables, graph)


def _call_findings(
    node: NodeSpec, check: DynamicCheck, tables: Mapping[str, NodeSpec], graph: Graph
) -> Iterator[Finding]:
    where = check.where or node.locate("sql")
    table = tables.get(check.table)
    if table is None:
        message = f"{node.described()}: the dynamic table '{check.table}' is not defined in pipeline topology"
        hint = did_you_mean(check.table, tables)
        yield UserError(DYNAMIC_TABLE, message, node=node.name, where=where, hint=hint)
        return
    fills, reads = graph.inputs.get(table, ()), graph.inputs.get(node, ())
    if not fills or not isinstance(table.options, DynamicTable):
        return
    others = sorted(set(reads) - set(fills))
    if others and table.options.same_input:
        message = (
            f"{node.described()}: it reads '{others[0]}', but the dynamic table '{table.name}' is filled from "
            f"'{fills[0]}': the table may be ahead of its rows or behind them"
        )
        hint = "let both read the same input, or allow it with 'same_input: false' on the table"
        yield UserError(DYNAMIC_TABLE, message, node=node.name, where=where, hint=hint)
    elif others:
        message = (
            f"{node.described()}: the dynamic table '{table.name}' may be ahead of the rows of '{others[0]}' "
            "or behind them"
        )
        yield Caution(DYNAMIC_TABLE, message, node=node.name, where=where)
    elif check.negated and table.options.filled_first:
        message = (
            f"{node.described()}: no row passes: the dynamic table '{table.name}' is filled from the same input, and "
            "the value of a row is added before the row is tested, unless the table has 'populate: after'"
        )
        yield Caution(DYNAMIC_TABLE, message, node=node.name, where=where, hint="set 'populate: after' on the table")


def is_filled_after(node: NodeSpec) -> bool:
    """Whether a query fills the table, with each row after it was tested."""
    return isinstance(node.options, DynamicTable) and not node.options.filled_first


def keeps_to_its_input(node: NodeSpec) -> bool:
    """Whether only queries that read the input which fills the table may look values up in it."""
    return isinstance(node.options, DynamicTable) and node.options.same_input


def fetched_columns(node: NodeSpec) -> Schema:
    return node.options.fetched_columns if isinstance(node.options, DynamicTable) else Schema(())


def table_columns(node: NodeSpec) -> Schema:
    """The columns of a dynamic table: its texts, then those that queries can fetch."""
    if not isinstance(node.options, DynamicTable):
        return Schema(())
    return Schema((Field(node.options.column, STRING, nullable=False), *node.options.fetched_columns))


def nesting_problems(node: NodeSpec, query: Query, pipeline: PipelineSpec, graph: Graph) -> Iterator[UserError]:
    """Calls whose rows cannot be told apart from each other, although the table has those of earlier rows only."""
    if not query.call_levels:
        return
    after = {n.ref: n for n in pipeline.transforms if is_filled_after(n)}
    inputs = graph.inputs.get(node, ())
    for level in query.call_levels:
        for call in level.calls:
            table = after.get(call.table or "")
            if table is not None and level.input is None and set(inputs) & set(graph.inputs.get(table, ())):
                message = (
                    f"the dynamic table '{table.name}' has 'populate: after', so it must be looked up in a SELECT that "
                    f"reads '{inputs[0]}' itself, not in one that reads another SELECT"
                )
                yield node.error(DYNAMIC_TABLE, message, "sql", hint="move the call into the inner SELECT")


def filling_problems(node: NodeSpec, statement: Statement, query: Query | None) -> Iterator[UserError]:
    """Why a query cannot fill a dynamic table; `query` is None if its columns are not known."""
    if not statement.plain:
        yield node.error(DYNAMIC_TABLE, f"unsupported SQL: {PLAIN_ONLY}", "sql")
        return
    if is_filled_after(node) and not statement.flat:
        message = "with 'populate: after' the query must be one SELECT over the input, without nested queries"
        yield node.error(DYNAMIC_TABLE, message, "sql")
    if query is None:
        return
    columns = [f for f in query.schema if f.name != OPERATION_COLUMN]
    if len(columns) != 1:
        names = ", ".join(f.name for f in columns) or "none"
        message = f"the query must give exactly one text column, but it gives {len(columns)}: {names}; {PLAIN_ONLY}"
        yield node.error(DYNAMIC_TABLE, message, "sql")
    elif columns[0].type != STRING:
        message = f"the column '{columns[0].name}' must be text, but it is {columns[0].type}"
        yield node.error(DYNAMIC_TABLE, message, "sql", hint=f"CAST({columns[0].name} AS TEXT)")
