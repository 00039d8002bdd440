"""The columns of a SELECT: stars are expanded, columns are named, the operation column is added."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from streamling.errors import UserError, Where
from streamling.plan.sql.calls import UNNEST, function_name
from streamling.plan.sql.constructs import sql_of, unsupported
from streamling.plan.sql.epoch import ITEM, ITEM_NUMBER, ROW_NUMBER, number_rows
from streamling.plan.sql.expressions import Compiler
from streamling.plan.sql.origin import offset_of
from streamling.plan.sql.scope import column_value, name_of
from streamling.plan.sql.shapes import table_name
from streamling.plan.sql.values import MONTHS, Refusal, Value, identifier
from streamling.plan.types import OPERATION_COLUMN

_AFTER_AS = re.compile(r"\bAS\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a SELECT.

    node         the tree node it was written as, None if it was not written
    starred      whether it comes from a star
    reads        the input columns that it reads
    parameters   the parameters of the epoch in it
    """

    name: str
    value: Value
    node: exp.Expr | None
    starred: bool = False
    reads: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        name = identifier(self.name)
        return name if self.value.text == name else f"{self.value.text} AS {name}"

    @property
    def appended(self) -> bool:
        return self.node is None

    @property
    def unnests(self) -> bool:
        """Whether it makes a row of each item of a list."""
        return self.node is not None and is_unnest(self.node.unalias())

    @property
    def is_operation(self) -> bool:
        """Whether it is the operation column of the input, unchanged."""
        return self.name == OPERATION_COLUMN and self.value.text == identifier(OPERATION_COLUMN)


def projection(
    node: exp.Select, compiler: Compiler, match: str | None = None, key: frozenset[str] = frozenset()
) -> Iterator[Column | UserError]:
    """The columns in order; a column with a problem is replaced by the problem.

    match   the column that says for which rows columns are computed, except those of the `key`
    """
    unnests = any(is_unnest(item.unalias()) for item in node.expressions)
    with compiler.numbering(ITEM_NUMBER if unnests else ROW_NUMBER):
        columns = [column for item in node.expressions for column in _item(item, compiler, match, key)]
    columns = _written_operation_wins(columns)
    compiler.reads.update(name for c in columns if isinstance(c, Column) and c.starred for name in c.reads)
    yield from _one_unnest(columns, compiler)
    if not any(isinstance(c, Column) and c.name == OPERATION_COLUMN for c in columns):
        yield Column(OPERATION_COLUMN, compiler.column([OPERATION_COLUMN]), None, reads=frozenset({OPERATION_COLUMN}))


def missing_commas(node: exp.Select, compiler: Compiler) -> Iterator[tuple[str, Where | None]]:
    """Warnings about `status total`, probably meant as `status, total`: the alias, without AS, is an input column."""
    for item in node.expressions:
        if not isinstance(item, exp.Alias) or not isinstance(item.this, exp.Column):
            continue
        own, alias = output_name(item.this), name_of(item.args["alias"])
        offset = offset_of(item.args["alias"])
        if own == alias or alias not in compiler.scope or offset is None:
            continue
        origin = compiler.origin
        if not _AFTER_AS.search(origin.sql, 0, offset):
            message = (
                f"column `{own}` is renamed to `{alias}`, which is also a column of the input; is a comma missing?"
            )
            yield message, origin.locate(*origin.place(offset))


def _item(node: exp.Expr, compiler: Compiler, match: str | None, key: frozenset[str]) -> list[Column | UserError]:
    star = node.this if isinstance(node, exp.Column) else node
    try:
        if isinstance(star, exp.Star):
            return list(_star_columns(node, star, compiler))
        inner = node.this if isinstance(node, exp.Alias) else node
        name = name_of(node.args["alias"]) if isinstance(node, exp.Alias) else output_name(inner)
        with compiler.collecting(None if name in key else match) as uses:
            value = _value(inner, compiler)
        return [Column(name, value, node, reads=frozenset(uses.reads), parameters=frozenset(uses.parameters))]
    except UserError as error:
        return [error]
    except Refusal as refusal:
        return [compiler.error(refusal, node)]


def _value(node: exp.Expr, compiler: Compiler) -> Value:
    if not is_unnest(node):
        value = compiler.value(node)
        if value.type == MONTHS:
            raise Refusal("an interval of months cannot be a column", hint="add it to a time")
        return value
    with compiler.numbering(ROW_NUMBER):
        arguments = [compiler.value(argument) for argument in node.expressions]
    if len(arguments) != 1 or arguments[0].type.item is None or arguments[0].type.kind != "list":
        types = ", ".join(str(argument.type) for argument in arguments) or "no argument"
        raise Refusal(f"`unnest(list)` does not accept {types}")
    return Value(f"explode({arguments[0].text})", arguments[0].type.item)


def multiplies_rows(tree: exp.Expr) -> bool:
    """Whether a query may make several rows of one: by `unnest`, or because it reads a table twice. One with common
    table expressions may, for all that is known."""
    if tree.find(exp.With) is not None or any(map(is_unnest, tree.find_all(exp.Anonymous))):
        return True
    streams = [table_name(table) for table in tree.find_all(exp.Table) if not isinstance(table.parent, exp.Join)]
    return len(streams) != len(set(streams))


def is_unnest(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and function_name(node) == UNNEST


def _star_columns(node: exp.Expr, star: exp.Star, compiler: Compiler) -> Iterator[Column]:
    for clause in ("replace", "rename", "ilike"):
        if star.args.get(clause):
            raise unsupported(compiler.origin, f"* {clause.upper()}", node)
    qualifier = [name_of(part) for part in node.parts[:-1]] if isinstance(node, exp.Column) else []
    if qualifier and not compiler.scope.is_qualifier(qualifier):
        name = ".".join(qualifier)
        raise Refusal(f"`{name}.*`: this SELECT does not read a table named `{name}`")
    excluded = {_excluded_name(column, compiler) for column in star.args.get("except_") or ()}
    for name, field in compiler.scope.select(qualifier):
        if name not in excluded:
            yield Column(name, column_value(field), node, starred=True, reads=frozenset({field.name}))


def _excluded_name(node: exp.Expr, compiler: Compiler) -> str:
    if not isinstance(node, exp.Column | exp.Identifier):
        raise unsupported(compiler.origin, "* EXCEPT with an expression", node)
    name = name_of(node.this if isinstance(node, exp.Column) else node)
    if name not in compiler.scope:
        raise compiler.error(compiler.scope.unknown([name]), node)
    return name


def _written_operation_wins(columns: list[Column | UserError]) -> list[Column | UserError]:
    """`SELECT *, 'd' AS _gs_op` has the operation column once, at the position where it was written by name."""
    written = any(isinstance(c, Column) and c.name == OPERATION_COLUMN and not c.starred for c in columns)
    return [c for c in columns if not (written and isinstance(c, Column) and c.is_operation and c.starred)]


def _one_unnest(columns: list[Column | UserError], compiler: Compiler) -> Iterator[Column | UserError]:
    unnested = 0
    for column in columns:
        yield column
        if isinstance(column, Column) and column.unnests:
            unnested += 1
            if unnested == 2:
                yield unsupported(compiler.origin, "more than one unnest in a SELECT", column.node)


def number_items(columns: list[Column], relation: str, condition: str) -> tuple[list[Column], str]:
    """The columns, and the relation in which each item of the unnested list is a numbered row."""
    (unnested,) = (column for column in columns if column.unnests)
    where = f" WHERE {condition}" if condition else ""
    rows = number_rows(f"(SELECT *, {unnested.value.text} AS {identifier(ITEM)} FROM {relation}{where})", ITEM_NUMBER)
    item = replace(unnested, value=replace(unnested.value, text=identifier(ITEM)))
    return [item if column is unnested else column for column in columns], rows


def output_name(node: exp.Expr) -> str:
    """The name of a column without alias: that of the column it selects or casts, else the text of the expression."""
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
        return name_of(node.this)
    if isinstance(node, exp.Cast | exp.TryCast | exp.Paren):
        return output_name(node.this)
    return sql_of(node)
