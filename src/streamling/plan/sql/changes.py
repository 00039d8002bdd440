"""What a query does to updates and deletes, as far as its text alone tells: the columns need not be known.

A WHERE and an inner join drop rows one by one. An update that no longer matches is dropped as well, and a target that
keeps one row per key keeps the row of before the update. The planner warns about that, or lets the query turn such rows
into deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from streamling.errors import UserError, Where
from streamling.plan.sql.calls import UNNEST, function_name
from streamling.plan.sql.constructs import unsupported
from streamling.plan.sql.deletions import DELETING
from streamling.plan.sql.functions import ADDED, FUNCTIONS
from streamling.plan.sql.functions.streamling_functions import TABLE_CALLS
from streamling.plan.sql.origin import Locate, SqlOrigin, nowhere, offset_of
from streamling.plan.sql.projections import is_unnest, output_name
from streamling.plan.sql.scope import name_of
from streamling.plan.sql.shapes import branches, cte_of, drops_rows, is_inner, table_name, unparenthesized
from streamling.plan.sql.statements import Statement, in_text_order
from streamling.plan.sql.syntax import checked_tokens, tree_of
from streamling.plan.types import OPERATION_COLUMN

_OPERATION_HINT = "put the condition on `_gs_op` into a transform of its own, before this one"
_UNNEST_HINT = "unnest in a transform of its own, after this one"
_UNION_HINT = "use one SELECT with CASE expressions, or a transform for each branch"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A part of a query that may drop an update or a delete.

    clause   `WHERE`, `JOIN`, `unnest`, or `filter` for the condition of a source
    table    the input whose columns it reads; None if it reads a nested query
    reads    these columns; None if its result depends on more than the row, for example on the time
    """

    clause: str
    table: str | None
    reads: frozenset[str] | None
    where: Where | None

    def is_constant_per_key(self, keys: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether all rows of one key match, or none; `keys` are the primary keys of the inputs, if known."""
        if self.clause == UNNEST or self.reads is None or self.table is None:
            return False
        return self.reads <= set(keys.get(self.table, ()))


def row_filters(statement: Statement) -> list[RowFilter]:
    """The parts of a query that may drop changes without looking at the operation of a row."""
    origin, tree = statement._origin, statement._tree
    filters = [found for select in tree.find_all(exp.Select) for found in _select_filters(origin, select)]
    return sorted(filters, key=lambda f: (f.where.line, f.where.column) if f.where else (0, 0))


def condition_filter(sql: str, table: str, *, node: str, locate: Locate = nowhere) -> RowFilter | None:
    """The condition of a source as a filter; None if it looks at the operation or does not parse."""
    origin = SqlOrigin(sql, node, locate)
    try:
        tree = tree_of(origin, checked_tokens(origin), expression=True)
    except (UserError, RecursionError):
        return None
    if _mentions_operation(tree) is not None:
        return None
    return RowFilter("filter", table, _reads(tree), origin.locate(1, 1))


def carries_changes(statement: Statement, inputs: Mapping[str, bool]) -> bool:
    """Whether a row of the query may be an update or a delete; `inputs` says the same of the tables."""
    return _carries(statement._tree, inputs)


def key_reads(statement: Statement, key: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """The columns that the key columns are computed from, by table, as far as the text tells."""
    tree = statement._tree
    if not isinstance(tree, exp.Select) or _table(tree) is None:
        return {}
    reads: set[str] = set()
    for name in key:
        item = next((item for item in tree.expressions if not item.is_star and _item_name(item) == name), None)
        reads |= _columns(item.unalias(), _qualifier(tree)) if item is not None else {name}
    return {_table(tree) or "": frozenset(reads)}


def deletion_problems(statement: Statement) -> list[UserError]:
    """Why the rows that a query drops cannot become deletes."""
    origin, tree = statement._origin, statement._tree
    problems = [*_unnest_problems(origin, tree), *_operation_problems(origin, tree), *_union_problems(origin, tree)]
    return in_text_order(problems)


def _select_filters(origin: SqlOrigin, node: exp.Select) -> Iterator[RowFilter]:
    if _computes_operation(node):
        return
    for item in node.expressions:
        if is_unnest(item.unalias()):
            yield RowFilter(UNNEST, _table(node), None, _place(origin, item))
    for join in node.args.get("joins") or ():
        if is_inner(join):  # a lookup changes: whether a row has a match does not depend on the row alone
            yield RowFilter("JOIN", _table(node), None, _place(origin, join))
    where = node.args.get("where")
    if where is not None and _mentions_operation(where) is None:
        yield RowFilter("WHERE", _table(node), _reads(where, _qualifier(node)), _place(origin, where))


def _place(origin: SqlOrigin, node: exp.Expr) -> Where | None:
    offset = offset_of(node)
    return None if offset is None else origin.locate(*origin.place(offset))


def _table(node: exp.Select) -> str | None:
    """The input that a SELECT reads itself; None if it reads a nested query."""
    relation = _relation(node)
    return table_name(relation) if isinstance(relation, exp.Table) and cte_of(relation) is None else None


def _relation(node: exp.Select) -> exp.Expr:
    relation: exp.Expr = unparenthesized(node.args["from_"].this)
    return relation


def _columns(node: exp.Expr, qualifier: str | None = None) -> set[str]:
    """The columns in an expression; `qualifier` may be written in front of them."""
    columns: set[str] = set()
    for column in node.find_all(exp.Column):
        names = [name_of(part) for part in column.parts]
        columns.add(names[1] if len(names) > 1 and names[0] == qualifier else names[0])
    return columns


def _mentions_operation(node: exp.Expr) -> exp.Expr | None:
    """The first mention of the operation column, with or without a qualifier."""
    columns = node.find_all(exp.Column)
    return next((column for column in columns if name_of(column.parts[-1]) == OPERATION_COLUMN), None)


def _qualifier(node: exp.Select) -> str | None:
    relation = _relation(node)
    alias = relation.args.get("alias")
    if alias is not None and alias.this is not None:
        return name_of(alias.this)
    return name_of(relation.this) if isinstance(relation, exp.Table) else None


def _reads(node: exp.Expr, qualifier: str | None = None) -> frozenset[str] | None:
    for call in node.find_all(exp.Anonymous):
        name = function_name(call)
        if name in TABLE_CALLS or name in ADDED or (name in FUNCTIONS and FUNCTIONS[name].takes):
            return None
    return frozenset(_columns(node, qualifier))


def _item_name(item: exp.Expr) -> str:
    return name_of(item.args["alias"]) if isinstance(item, exp.Alias) else output_name(item)


def _operation_item(node: exp.Select) -> exp.Expr | None:
    items = (item for item in node.expressions if not item.is_star and _item_name(item) == OPERATION_COLUMN)
    return next((item.unalias() for item in items), None)


def _computes_operation(node: exp.Select) -> bool:
    item = _operation_item(node)
    return item is not None and not isinstance(item, exp.Column)


def _carries(node: exp.Expr, inputs: Mapping[str, bool]) -> bool:
    parts = branches(node)
    if len(parts) > 1:
        return any(_carries(part, inputs) for part in parts)
    if isinstance(node, exp.Union):
        return _carries(node.this, inputs) or _carries(node.expression, inputs)
    if not isinstance(node, exp.Select):
        return _carries(node.this, inputs)
    item = _operation_item(node)
    if item is not None and not (isinstance(item, exp.Column) and name_of(item.parts[-1]) == OPERATION_COLUMN):
        return not (isinstance(item, exp.Literal) and item.is_string and item.name == "i")
    relation = _relation(node)
    if not isinstance(relation, exp.Table):
        return _carries(relation, inputs)
    cte = cte_of(relation)
    return _carries(cte, inputs) if cte is not None else inputs.get(table_name(relation), True)


def _unnest_problems(origin: SqlOrigin, tree: exp.Expr) -> Iterator[UserError]:
    for call in tree.find_all(exp.Anonymous):
        if is_unnest(call):
            what = f"unnest with {DELETING}: the rows that an earlier version of a row gave are not known"
            yield unsupported(origin, what, call, hint=_UNNEST_HINT)


def _operation_problems(origin: SqlOrigin, tree: exp.Expr) -> Iterator[UserError]:
    for where in tree.find_all(exp.Where, exp.Join):
        column = _mentions_operation(where)
        if column is not None:
            clause = "an ON" if isinstance(where, exp.Join) else "a WHERE"
            what = f"`{OPERATION_COLUMN}` in {clause} with {DELETING}: the rows it drops would become deletes"
            yield unsupported(origin, what, column, hint=_OPERATION_HINT)


def _union_problems(origin: SqlOrigin, tree: exp.Expr) -> Iterator[UserError]:
    """Without a UNION ALL no input can be read twice."""
    if tree.find(exp.Union) is None or not drops_rows(tree):
        return
    seen: set[str] = set()
    streams = (table for table in tree.find_all(exp.Table) if not isinstance(table.parent, exp.Join))
    for table in sorted(streams, key=lambda table: offset_of(table) or 0):
        name = table_name(table)
        if name in seen:
            what = f"two branches of a UNION ALL over '{name}' with {DELETING}: a row would be deleted by the branch "
            yield unsupported(origin, f"{what}that it does not match", table, hint=_UNION_HINT)
            return
        seen.add(name)
