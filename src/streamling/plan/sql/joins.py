"""Joins of a stream with lookups, as Spark text.

Every row of the stream stays one row, in its place: the condition compares the whole primary key of the lookup, of
which each value occurs once. So an inner join is a left join and the condition that there was a match. The columns of a
lookup get names of their own in the Spark text, so those of the stream need no qualifier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from streamling.errors import LOOKUP, UserError
from streamling.plan.sql.coercions import is_integer
from streamling.plan.sql.dependencies import LookupJoin
from streamling.plan.sql.expressions import Compiler
from streamling.plan.sql.functions import Function
from streamling.plan.sql.origin import SqlOrigin
from streamling.plan.sql.scope import JoinedTable, Scope, name_of
from streamling.plan.sql.shapes import is_inner, table_name, unparenthesized
from streamling.plan.sql.values import identifier
from streamling.plan.types import DataType, Schema

__all__ = ["JoinedRows", "Joiner", "LookupJoin", "LookupTable"]


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A lookup as queries see it: its columns, its primary key, and the Spark view with its rows."""

    columns: Schema
    key: tuple[str, ...]
    view: str


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The rows of a SELECT with the columns of the lookups that it joins.

    text         the relation
    matches      the condition that all inner joins have found a row; empty if there is none
    reads        the columns that the conditions of the joins read
    parameters   the parameters of the epoch in them
    """

    text: str
    scope: Scope
    matches: str = ""
    reads: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()
    joins: tuple[LookupJoin, ...] = ()


@dataclass(frozen=True, slots=True)
class _Key:
    """One side of an equality that is a key column of the lookup, and the other side.

    stream   the column of the stream that the other side is, if it is one
    """

    column: str
    stream: str | None


@dataclass(frozen=True, slots=True)
class Joiner:
    """Compiles the joins of one SELECT."""

    origin: SqlOrigin
    lookups: Mapping[str, LookupTable]
    functions: Mapping[str, Function]
    salts: Iterator[str]

    def join(self, node: exp.Select, rows: str, scope: Scope, stream: str | None) -> JoinedRows:
        """The rows with the columns of the lookups; `stream` is the input that they come from. Raises UserError."""
        joined = JoinedRows(rows, scope)
        for number, join in enumerate(node.args.get("joins") or (), start=1):
            joined = self._join(join, joined, f"#{number}.", stream)
        return joined

    def _join(self, join: exp.Expr, rows: JoinedRows, prefix: str, stream: str | None) -> JoinedRows:
        node = unparenthesized(join.this)
        if not isinstance(node, exp.Table):
            raise AssertionError(f"shapes accepted {type(node).__name__}")
        lookup, name = self.lookups[table_name(node)], table_name(node)
        alias = node.args.get("alias")
        label = name_of(alias.this) if alias is not None and alias.this is not None else name
        if label in (rows.scope.qualifier, *(table.qualifier for table in rows.scope.joined)):
            message = f"two tables of the query are named `{label}`"
            raise self.origin.error(LOOKUP, message, at=node, hint="give one of them an alias")
        table = JoinedTable(lookup.columns, label, prefix)
        scope = replace(rows.scope, joined=(*rows.scope.joined, table))
        compiler = Compiler(self.origin, scope, self.functions, self.salts)
        condition = compiler.condition(join.args["on"])
        self._check_calls(compiler, join)
        keys = self._keys(join, name, lookup, table, scope)
        columns = ", ".join(f"{identifier(f.name)} AS {identifier(prefix + f.name)}" for f in lookup.columns)
        other = f"(SELECT {columns} FROM {identifier(lookup.view)})"
        matches = [rows.matches] if rows.matches else []
        # A key in the lookup is never NULL, so it is NULL only without a match.
        matches += [f"{identifier(prefix + lookup.key[0])} IS NOT NULL"] if is_inner(join) else []
        text = f"(SELECT * FROM {rows.text} LEFT JOIN {other} ON {condition.text})"
        plain = len(list(_conjuncts(join.args["on"]))) == len(lookup.key)
        return JoinedRows(
            text,
            scope,
            " AND ".join(matches),
            rows.reads | compiler.reads,
            rows.parameters | compiler.parameters,
            (*rows.joins, LookupJoin(name, stream, keys, rows.text, text, prefix, plain)),
        )

    def _check_calls(self, compiler: Compiler, join: exp.Expr) -> None:
        if compiler.plugin_functions or compiler.row_numbers:
            name = min(compiler.plugin_functions, default="random")
            message = f"the ON of a join cannot call `{name}`"
            raise self.origin.error(
                LOOKUP, message, at=join.args["on"], hint="compute it in a transform before this one"
            )

    def _keys(
        self, join: exp.Expr, name: str, lookup: LookupTable, table: JoinedTable, scope: Scope
    ) -> dict[str, str | None]:
        """By key column: the column of the stream it is compared with, if it is one. Raises UserError."""
        compiler = Compiler(self.origin, scope, self.functions, self.salts)
        found = [self._key(part, lookup, table, compiler) for part in _conjuncts(join.args["on"])]
        keys = {key.column: key.stream for key in found if key is not None}
        missing = [column for column in lookup.key if column not in keys]
        if missing:
            names = ", ".join(missing)
            raise self.origin.error(
                LOOKUP,
                f"the join with the lookup '{name}' must compare its whole primary key by `=`; missing: {names}",
                at=join,
                hint=f"ON {' AND '.join(f'.. = {table.qualifier}.{column}' for column in lookup.key)}",
            )
        return {column: keys[column] for column in lookup.key}

    def _key(self, node: exp.Expr, lookup: LookupTable, table: JoinedTable, compiler: Compiler) -> _Key | None:
        """The key column in an equality whose other side does not depend on the lookup; None if it is no such one."""
        if not isinstance(node, exp.EQ):
            return None
        for side, other in ((node.this.unnest(), node.expression.unnest()), (node.expression.unnest(), node.this)):
            column = _own_column(side, lookup, table, compiler)
            if column is None:
                continue
            with compiler.collecting(None) as uses:
                value = compiler.value(other)
            if any(name.startswith(table.prefix) for name in uses.reads):
                continue
            field = lookup.columns.get(column)
            if field is not None and not _comparable(field.type, value.type):
                raise self._other_type(node, column, field.type, value.type)
            plain = isinstance(other.unnest(), exp.Column) and value.text == identifier(min(uses.reads, default=""))
            read = min(uses.reads, default="")
            same = field is not None and field.type == value.type
            return _Key(column, read if plain and same and read in compiler.scope.columns else None)
        return None

    def _other_type(self, node: exp.Expr, column: str, type_: DataType, other: DataType) -> UserError:
        message = f"the key column `{column}` is {type_} and is compared with {other}: keys must be of the same type"
        return self.origin.error(LOOKUP, message, at=node, hint=f"cast the other side to {type_}")


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _own_column(node: exp.Expr, lookup: LookupTable, table: JoinedTable, compiler: Compiler) -> str | None:
    """The key column that an expression is."""
    if not isinstance(node, exp.Column):
        return None
    text = compiler.value(node).text
    return next((name for name in lookup.key if text == identifier(table.prefix + name)), None)


def _comparable(key: DataType, other: DataType) -> bool:
    """Whether different keys stay different in the comparison, so that a row has one match at most."""
    if key == other or (is_integer(key) and is_integer(other)):
        return True
    exact = key.kind in ("timestamp", "binary") and key.kind == other.kind
    return exact and (key.zone is None) == (other.zone is None)
