"""Queries: from a checked statement to Spark SQL and the schema of its rows.

Every input has the operation column, and so has every query: a SELECT without it gets it as its last column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from sqlglot import exp

from streamling.errors import (
    INTERNAL,
    NODE_NOT_FOUND,
    PRIMARY_KEY,
    SQL_DUPLICATE_COLUMN,
    SQL_TYPES,
    SQL_UNSUPPORTED,
    BugError,
    UserError,
    Where,
)
from streamling.plan.sql.compiled import Expression, Query
from streamling.plan.sql.deletions import DELETING, KEPT, MATCH, Guard, computed_columns, unusable_keys
from streamling.plan.sql.dependencies import Dependencies, merge
from streamling.plan.sql.epoch import ITEM_NUMBER, ROW_NUMBER, make_salts, number_rows
from streamling.plan.sql.expressions import Compiler
from streamling.plan.sql.functions import Function
from streamling.plan.sql.joins import JoinedRows, Joiner, LookupJoin, LookupTable
from streamling.plan.sql.origin import Locate, SqlOrigin, nowhere
from streamling.plan.sql.projections import Column, missing_commas, multiplies_rows, number_items, projection
from streamling.plan.sql.scope import Scope, name_of
from streamling.plan.sql.shapes import branches, cte_name, drops_rows, table_name, unparenthesized
from streamling.plan.sql.statements import Statement, raise_all, too_deep
from streamling.plan.sql.syntax import checked_tokens, tree_of
from streamling.plan.sql.table_calls import CallLevel, SelectCalls
from streamling.plan.sql.unions import Branch, union
from streamling.plan.sql.values import Value, identifier
from streamling.plan.sql.worker_calls import call_in_lambda
from streamling.plan.types import BOOLEAN, OPERATION_COLUMN, STRING, Field, Schema

_NO_FUNCTIONS: Mapping[str, Function] = {}
_NO_LOOKUPS: Mapping[str, LookupTable] = {}
_NO_TABLES: Mapping[str, Schema] = {}


def compile_query(
    statement: Statement,
    inputs: Mapping[str, Schema],
    views: Mapping[str, str],
    *,
    functions: Mapping[str, Function] = _NO_FUNCTIONS,
    deletes: tuple[str, ...] | None = None,
    lookups: Mapping[str, LookupTable] = _NO_LOOKUPS,
    tables: Mapping[str, Schema] = _NO_TABLES,
    aligned: bool = False,
) -> Query:
    """The statement as Spark SQL.

    inputs, views   the schema and the Spark view of each table, by reference name
    functions       entries added to the function table; they override those of the same name
    deletes         the primary key of the rows, if updates and deletes that do not match a WHERE become deletes; the
                    statement must have no `deletion_problems`
    lookups         the lookups that it joins, by reference name
    tables          the columns that can be fetched from each dynamic table, by its reference name
    aligned         one row per row of the input: NULL and the operation for a row that does not match the WHERE. The
                    statement must be `flat`
    Raises UserError, or InvalidPipeline with all problems.
    """
    salts = make_salts(statement._origin.node)
    joiner = Joiner(statement._origin, lookups, functions, salts)
    compiler = _Queries(statement._origin, inputs, views, functions, salts, deletes, joiner, tables, aligned)
    try:
        branch = compiler.query(statement._tree, {}, outermost=True)
    except RecursionError as error:
        raise too_deep(statement._origin, error) from None
    except _BrokenQuery:
        branch = None
    raise_all(compiler.problems)
    if branch is None:
        raise AssertionError("a query is broken but has no problem")
    for text in (branch.text, *(level.text for level in branch.needs.call_levels)):
        _check_worker_calls(statement._origin, text)
    return Query(
        branch.text,
        Schema(branch.fields),
        {table: branch.needs.reads.get(table, frozenset()) for table in statement.tables},
        branch.needs.functions,
        branch.needs.parameters,
        statement.checked_tables,
        branch.needs.call_levels,
        compiler.copied if statement.flat else None,
        tuple(compiler.cautions),
        branch.needs.joins,
        filters=drops_rows(statement._tree) and not aligned,
        multiplies=multiplies_rows(statement._tree),
    )


def compile_expression(
    sql: str,
    columns: Schema,
    *,
    node: str,
    locate: Locate = nowhere,
    functions: Mapping[str, Function] = _NO_FUNCTIONS,
    salt: str = "",
) -> Expression:
    """One expression over `columns`, for example a filter. Raises UserError.

    salt   makes `random()` differ from calls in other expressions of the node
    """
    origin = SqlOrigin(sql, node, locate)
    try:
        tree = tree_of(origin, checked_tokens(origin), expression=True)
        compiler = Compiler(origin, Scope(columns), functions, make_salts(f"{node}:{salt}"))
        value = compiler.value(tree)
    except RecursionError as error:
        raise too_deep(origin, error) from None
    _check_worker_calls(origin, value.text)
    return Expression(
        value.text,
        value.type,
        value.nullable,
        frozenset(compiler.reads),
        frozenset(compiler.plugin_functions),
        frozenset(compiler.parameters),
    )


def _check_worker_calls(origin: SqlOrigin, text: str) -> None:
    name = call_in_lambda(text)
    if name is not None:
        message = f"the plugin function `{name}` cannot be used inside the function around it"
        raise origin.error(SQL_UNSUPPORTED, message, hint="compute it in a transform before this one")


def _copied_column(columns: Sequence[Column], scope: Scope) -> str | None:
    """The column of the input that is the only one besides the operation."""
    texts = [column.value.text for column in columns if column.name != OPERATION_COLUMN]
    return next((name for name in scope.columns.names if texts == [identifier(name)]), None)


def _nulled(columns: Sequence[Column], condition: str) -> list[Column]:
    """All columns but the operation are NULL where the condition does not hold."""
    return [
        column
        if column.name == OPERATION_COLUMN
        else replace(column, value=Value(f"CASE WHEN {condition} THEN {column.value.text} END", column.value.type))
        for column in columns
    ]


class _BrokenQuery(Exception):
    """A query has no columns because of problems already reported."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """What a SELECT reads: a table, or the rows of another query."""

    text: str
    scope: Scope
    table: str | None = None
    query: Branch | None = None

    @property
    def matching(self) -> bool:
        return self.query is not None and self.query.matching

    @property
    def computed(self) -> frozenset[str]:
        return self.query.computed if self.query is not None else frozenset()

    def needs(self, compiler: Compiler, joins: tuple[LookupJoin, ...], levels: Sequence[CallLevel]) -> Dependencies:
        """The dependencies of a SELECT whose expressions are compiled.

        A SELECT from a table depends on the columns it reads. A nested query computes all its columns, used or not.
        """
        columns = frozenset(name for name in compiler.reads if name in self.scope.columns)
        reads = {self.table: columns} if self.table is not None else {}
        functions, parameters = frozenset(compiler.plugin_functions), frozenset(compiler.parameters)
        own = Dependencies(reads, functions, parameters, joins, tuple(levels))
        return own if self.query is None else merge((self.query.needs, own))


@dataclass(slots=True)
class _Queries:
    origin: SqlOrigin
    inputs: Mapping[str, Schema]
    views: Mapping[str, str]
    functions: Mapping[str, Function]
    salts: Iterator[str]
    deletes: tuple[str, ...] | None
    joiner: Joiner
    tables: Mapping[str, Schema] = field(default_factory=dict)
    aligned: bool = False
    view_count: int = 0
    copied: str | None = None
    problems: list[UserError] = field(default_factory=list)
    cautions: list[tuple[str, Where | None]] = field(default_factory=list)

    def query(self, node: exp.Expr, known: Mapping[str, Branch], *, outermost: bool = False) -> Branch:
        """The compiled query; `known` are the common table expressions that it may name.

        outermost   its rows are those of the statement
        """
        parts = branches(node)
        if len(parts) > 1:
            return self._union(parts, known, outermost)
        known = self._ctes(node.args.get("with_"), known)
        if isinstance(node, exp.Union):
            return self._union([node.this, node.expression], known, outermost)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, known, outermost=outermost)
        if isinstance(node, exp.Select):
            return self._select(node, known, outermost)
        raise AssertionError(f"shapes accepted {type(node).__name__}")

    def _union(self, parts: Sequence[exp.Expr], known: Mapping[str, Branch], outermost: bool) -> Branch:
        queries = [self.query(part, known, outermost=outermost) for part in parts]
        result = union(queries)
        if isinstance(result, Branch):
            self._check_key_positions(parts, queries, outermost)
            return result
        self._problem(self.origin.error(SQL_TYPES, result.message, at=parts[result.branch]))
        raise _BrokenQuery

    def _check_key_positions(self, parts: Sequence[exp.Expr], queries: Sequence[Branch], outermost: bool) -> None:
        """The key columns of a delete are found by their names, so all branches must have them at the same places."""
        if not outermost or not any(map(drops_rows, parts)):
            return
        for name in self.deletes or ():
            positions = [query.position(name) for query in queries]
            other = next((n for n, position in enumerate(positions) if position != positions[0]), None)
            if other is not None:
                message = f"UNION ALL with {DELETING}: the key column `{name}` must have this name in every branch"
                self._problem(self.origin.error(PRIMARY_KEY, message, at=parts[other]))

    def _problem(self, error: UserError) -> None:
        self.problems.append(error)

    def _ctes(self, with_: exp.Expr | None, known: Mapping[str, Branch]) -> Mapping[str, Branch]:
        if with_ is None:
            return known
        ctes = dict(known)
        for cte in with_.expressions:
            alias = cte.args["alias"]
            ctes[name_of(alias.this)] = self._rename(self.query(cte.this, ctes), alias)
        return ctes

    def _rename(self, branch: Branch, alias: exp.Expr | None) -> Branch:
        """`AS t(a, b)`: new names for the columns that were written, not for an added operation column."""
        names = [name_of(column) for column in (alias.args.get("columns") or ())] if alias is not None else []
        if not names:
            return branch
        renamed = branch.rename(names)
        if isinstance(renamed, Branch):
            return renamed
        self._problem(self.origin.error(SQL_TYPES, renamed, at=alias))
        raise _BrokenQuery

    def _select(self, node: exp.Select, known: Mapping[str, Branch], outermost: bool) -> Branch:
        relation = self._relation(node.args["from_"].this, known)
        joined = self._join(node, relation)
        compiler = Compiler(self.origin, joined.scope, self.functions, self.salts, SelectCalls(self.tables))
        compiler.reads.update(joined.reads)
        compiler.parameters.update(joined.parameters)
        problems_before = len(self.problems)
        guard = self._guard(node, relation, outermost, joins=bool(joined.matches))
        columns = self._columns(node, compiler, guard)
        where = " AND ".join(filter(None, (joined.matches, self._where(node, compiler))))
        if len(self.problems) > problems_before:
            raise _BrokenQuery
        if guard is not None:
            compiler.reads.add(OPERATION_COLUMN)
        if self.aligned and where:
            columns, where = _nulled(columns, where), ""
        levels = self._call_levels(relation, joined, compiler)
        self.copied = None if where or levels else _copied_column(columns, relation.scope)
        rows = identifier(levels[-1].view) if levels else joined.text
        if ROW_NUMBER in compiler.row_numbers:
            rows = number_rows(rows)
        if guard is not None:
            columns, rows, where = guard.apply(columns), guard.rows(rows, where), ""
        elif ITEM_NUMBER in compiler.row_numbers:
            columns, rows = number_items(columns, rows, where)
            where = ""
        texts = [column.text for column in columns]
        texts += [guard.match_column] if guard is not None and not outermost else []
        return Branch(
            f"SELECT {', '.join(texts)} FROM {rows}{f' WHERE {where}' if where else ''}",
            tuple(Field(c.name, c.value.type, c.value.nullable) for c in columns),
            needs=relation.needs(compiler, joined.joins, levels),
            appended=columns[-1].appended,
            computed=computed_columns(columns, relation.computed) if self.deletes is not None else frozenset(),
            matching=guard is not None and not outermost,
        )

    def _join(self, node: exp.Select, relation: _Relation) -> JoinedRows:
        try:
            return self.joiner.join(node, relation.text, relation.scope, relation.table)
        except UserError as error:
            self._problem(error)
            raise _BrokenQuery from None

    def _call_levels(self, relation: _Relation, joined: JoinedRows, compiler: Compiler) -> list[CallLevel]:
        """The calls of dynamic tables in a SELECT, over the columns that it reads."""
        if compiler.table_calls is None or not compiler.table_calls.calls:
            return []
        columns = [f for f in joined.scope.fields if f.name in compiler.reads]
        columns += [Field(MATCH, BOOLEAN)] if relation.matching else []
        view = self.views[relation.table] if relation.table is not None and not joined.joins else None
        return compiler.table_calls.levels(joined.text, view, columns, iter(self._view_name, ""))

    def _view_name(self) -> str:
        """A name that no other statement uses."""
        self.view_count += 1
        digest = hashlib.sha256(f"{self.origin.node}\n{self.origin.sql}".encode()).hexdigest()[:16]
        return f"calls_{digest}_{self.view_count}"

    def _guard(self, node: exp.Select, relation: _Relation, outermost: bool, *, joins: bool) -> Guard | None:
        """None if all rows match, or if rows that do not match are dropped. `joins`: an inner join drops some."""
        filters = joins or node.args.get("where") is not None
        if self.deletes is None or not (filters or relation.matching):
            return None
        key = frozenset(self.deletes) if outermost else frozenset[str]()
        return Guard(KEPT if filters else MATCH, relation.computed, key, nested=relation.matching)

    def _columns(self, node: exp.Select, compiler: Compiler, guard: Guard | None) -> list[Column]:
        columns: list[Column] = []
        self.cautions.extend(missing_commas(node, compiler))
        for item in projection(node, compiler, *((guard.match, guard.key) if guard else ())):
            if isinstance(item, UserError):
                self._problem(item)
            else:
                columns.append(item)
        self._check_names(node, columns)
        own = frozenset(compiler.scope.columns.names)
        for column, reason, hint in unusable_keys(columns, guard, own) if guard else ():
            message = f"the key column `{column.name}` cannot be used with {DELETING}: {reason}"
            self._problem(self.origin.error(PRIMARY_KEY, message, at=column.node or node, hint=hint))
        return columns

    def _check_names(self, node: exp.Select, columns: list[Column]) -> None:
        seen: set[str] = set()
        for column in columns:
            if column.name in seen:
                hint = "give one of them an alias, or exclude it from the star: * EXCEPT (..)"
                message = f"two columns are named `{column.name}`"
                self._problem(self.origin.error(SQL_DUPLICATE_COLUMN, message, at=column.node or node, hint=hint))
            seen.add(column.name)
            if column.name == OPERATION_COLUMN and column.value.type != STRING:
                message = f"`{OPERATION_COLUMN}` must be text, but it is {column.value.type}"
                self._problem(self.origin.error(SQL_TYPES, message, at=column.node))

    def _where(self, node: exp.Select, compiler: Compiler) -> str:
        where = node.args.get("where")
        if where is None:
            return ""
        try:
            return compiler.condition(where.this).text
        except UserError as error:
            self._problem(error)
            return ""

    def _relation(self, node: exp.Expr, known: Mapping[str, Branch]) -> _Relation:
        node = unparenthesized(node)
        alias = node.args.get("alias")
        label = name_of(alias.this) if alias is not None and alias.this is not None else None
        if isinstance(node, exp.Subquery):
            branch = self._rename(self.query(node, known), alias)
            return _Relation(f"({branch.text})", Scope(Schema(branch.fields), label), query=branch)
        if not isinstance(node, exp.Table):
            raise AssertionError(f"shapes accepted {type(node).__name__}")
        cte = known.get(cte_name(node) or "")
        if cte is not None:
            return _Relation(f"({cte.text})", Scope(Schema(cte.fields), label or cte_name(node)), query=cte)
        name = table_name(node)
        if name not in self.inputs or name not in self.views:
            self._problem(self._unknown_table(name, node))
            raise _BrokenQuery
        if OPERATION_COLUMN not in self.inputs[name]:
            raise BugError(INTERNAL, f"the schema of `{name}` has no `{OPERATION_COLUMN}`", node=self.origin.node)
        return _Relation(identifier(self.views[name]), Scope(self.inputs[name], label or name), table=name)

    def _unknown_table(self, name: str, node: exp.Expr) -> UserError:
        near = get_close_matches(name, self.inputs, n=1)
        suggestion = f". Did you mean `{near[0]}`?" if near else ""
        return self.origin.error(NODE_NOT_FOUND, f"there is no source or transform named `{name}`{suggestion}", at=node)
