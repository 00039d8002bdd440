"""Checks of a query that can be made while the columns of its inputs are not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from streamling.errors import SQL_DUPLICATE_COLUMN, SQL_TYPES, UserError
from streamling.plan.sql.calls import UNNEST, find_function, function_name
from streamling.plan.sql.casts import named_type
from streamling.plan.sql.functions import Function
from streamling.plan.sql.origin import Locate, SqlOrigin, nowhere
from streamling.plan.sql.projections import output_name
from streamling.plan.sql.scope import name_of
from streamling.plan.sql.shapes import branches
from streamling.plan.sql.statements import Statement, in_text_order, too_deep
from streamling.plan.sql.syntax import checked_tokens, tree_of
from streamling.plan.sql.values import Refusal
from streamling.plan.types import OPERATION_COLUMN

_NO_FUNCTIONS: Mapping[str, Function] = {}


def check_statement(statement: Statement, functions: Mapping[str, Function] = _NO_FUNCTIONS) -> list[UserError]:
    """All problems that can be found without column types, in the order of the text.

    functions   entries added to the function table
    """
    origin, tree = statement._origin, statement._tree
    problems: list[UserError] = []
    for call in tree.find_all(exp.Anonymous):
        problems.extend(_call(origin, call, functions))
    for cast in tree.find_all(exp.Cast, exp.TryCast):
        problems.extend(_cast(origin, cast))
    for select in tree.find_all(exp.Select):
        problems.extend(_select(origin, select))
    problems.extend(_unions(origin, tree))
    return in_text_order(problems)


def check_expression(sql: str, *, node: str, locate: Locate = nowhere) -> list[UserError]:
    """The same for one expression, for example a filter."""
    origin = SqlOrigin(sql, node, locate)
    try:
        tree = tree_of(origin, checked_tokens(origin), expression=True)
        calls = [problem for call in tree.find_all(exp.Anonymous) for problem in _call(origin, call, _NO_FUNCTIONS)]
        casts = [problem for cast in tree.find_all(exp.Cast, exp.TryCast) for problem in _cast(origin, cast)]
    except RecursionError as error:
        return [too_deep(origin, error)]
    except UserError as error:
        return [error]
    return in_text_order([*calls, *casts])


def _call(origin: SqlOrigin, node: exp.Expr, functions: Mapping[str, Function]) -> Iterator[UserError]:
    if function_name(node) == UNNEST:
        return
    function = find_function(origin, node, functions)
    if isinstance(function, UserError):
        yield function
        return
    try:
        function.check_count(len(node.expressions))
    except Refusal as refusal:
        yield origin.error(refusal.condition, refusal.message, at=node)


def _cast(origin: SqlOrigin, node: exp.Expr) -> Iterator[UserError]:
    try:
        named_type(node.args["to"])
    except Refusal as refusal:
        yield origin.error(refusal.condition, refusal.message, at=node, hint=refusal.hint)


def _select(origin: SqlOrigin, node: exp.Select) -> Iterator[UserError]:
    seen: set[str] = set()
    for item in node.expressions:
        if item.is_star:
            continue
        name = _name(item)
        if name in seen:
            hint = "give one of them an alias"
            yield origin.error(SQL_DUPLICATE_COLUMN, f"two columns are named `{name}`", at=item, hint=hint)
        seen.add(name)
        if name == OPERATION_COLUMN and _is_other_literal(item.unalias()):
            yield origin.error(SQL_TYPES, f"`{OPERATION_COLUMN}` must be text", at=item)
    where = node.args.get("where")
    if where is not None and isinstance(where.this.unnest(), exp.Literal):
        yield origin.error(SQL_TYPES, "a condition must be boolean, but this one is a literal", at=where.this)


def _name(item: exp.Expr) -> str:
    return name_of(item.args["alias"]) if isinstance(item, exp.Alias) else output_name(item)


def _is_other_literal(node: exp.Expr) -> bool:
    """Whether it is a literal other than text."""
    return isinstance(node, exp.Boolean) or (isinstance(node, exp.Literal) and not node.is_string)


def _unions(origin: SqlOrigin, tree: exp.Expr) -> Iterator[UserError]:
    for union in tree.find_all(exp.Union):
        if isinstance(union.parent, exp.Union) and union.parent.this is union:
            continue
        parts = branches(union)
        counts = [_columns(part) for part in parts]
        for number, (part, count) in enumerate(zip(parts, counts, strict=True), start=1):
            if None not in (count, counts[0]) and count != counts[0]:
                message = f"UNION ALL: branch 1 has {counts[0]} columns, branch {number} has {count}"
                yield origin.error(SQL_TYPES, message, at=part)
                break


def _columns(node: exp.Expr) -> int | None:
    """The number of columns of a branch without the operation column; None if it has a star."""
    node = node.unnest()
    if not isinstance(node, exp.Select) or any(item.is_star for item in node.expressions):
        return None
    return sum(_name(item) != OPERATION_COLUMN for item in node.expressions)
