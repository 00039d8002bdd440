"""Statements: parsed SQL texts whose shapes are checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sqlglot import TokenType, exp

from streamling.errors import SQL_SYNTAX, SQL_UNSUPPORTED, InvalidPipeline, StreamlingError, UserError, Where
from streamling.plan.sql.calls import UNNEST, function_name
from streamling.plan.sql.constructs import unsupported
from streamling.plan.sql.functions.streamling_functions import TABLE_CALLS
from streamling.plan.sql.origin import Locate, SqlOrigin, nowhere, offset_of
from streamling.plan.sql.shapes import Shapes, drops_rows, table_name
from streamling.plan.sql.syntax import checked_tokens, similar_keyword, tree_of

_OPENINGS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES})
# fmt: off
_STATEMENTS = frozenset({
    "alter", "analyze", "attach", "begin", "call", "cache", "comment", "commit", "copy", "create", "declare",
    "deallocate", "delete", "desc", "describe", "drop", "execute", "explain", "export", "grant", "import", "insert",
    "install", "kill", "load", "lock", "merge", "pragma", "prepare", "refresh", "replace", "reset", "revoke",
    "rollback", "set", "show", "start", "truncate", "uncache", "unload", "update", "upsert", "use", "vacuum",
})
# fmt: on


# The parser takes minutes for a longer text: long lists of values belong into a dynamic table.
MAX_LENGTH = 500_000


@dataclass(frozen=True, slots=True)
class DynamicCheck:
    """One call of `dynamic_table_check` or `dynamic_table_get`.

    table     the reference name of the table
    negated   whether the call is the operand of NOT
    """

    table: str
    negated: bool
    where: Where | None


@dataclass(frozen=True)
class Statement:
    """A parsed query whose shapes are accepted.

    tables           the inputs it reads, as unique reference names in order of appearance, without names of CTEs
    checked_tables   the calls that look values up in dynamic tables, in order of appearance
    lookups          the lookups it joins, as unique reference names in order of appearance
    """

    tables: tuple[str, ...]
    checked_tables: tuple[DynamicCheck, ...]
    lookups: tuple[str, ...]
    _tree: exp.Expr = field(repr=False, compare=False)
    _origin: SqlOrigin = field(compare=False)

    @property
    def plain(self) -> bool:
        """Whether it has one input and makes at most one row of each row: only projections and filters."""
        calls = (function_name(call) for call in self._tree.find_all(exp.Anonymous))
        return len(self.tables) == 1 and self._tree.find(exp.Union, exp.Explode) is None and UNNEST not in calls

    @property
    def flat(self) -> bool:
        """Whether it is one SELECT that reads an input, without nested queries."""
        tree = self._tree
        return isinstance(tree, exp.Select) and len(list(tree.find_all(exp.Select))) == 1

    @property
    def filters(self) -> bool:
        """Whether a WHERE or an inner join may drop rows."""
        return drops_rows(self._tree)

    def place_of(self, table: str) -> Where | None:
        """The position at which the query first names a table."""
        offsets = [offset_of(node) for node in self._tree.find_all(exp.Table) if table_name(node) == table]
        first = min((offset for offset in offsets if offset is not None), default=None)
        return None if first is None else self._origin.locate(*self._origin.place(first))


def parse(
    sql: str, *, node: str, locate: Locate = nowhere, only: str | None = None, lookups: Collection[str] = ()
) -> Statement:
    """The one query in `sql`. Raises UserError, or InvalidPipeline with all problems of its shape.

    only      a sentence about what this node supports, appended to every message about an unsupported construct
    lookups   the reference names of the tables that it may join
    """
    origin = SqlOrigin(sql, node, locate, only)
    if len(sql) > MAX_LENGTH:
        raise unsupported(origin, f"longer than {MAX_LENGTH:,} characters", None)
    try:
        tree = _tree(origin)
        shapes = Shapes(origin, lookups)
        shapes.query(tree)
    except RecursionError as error:
        raise too_deep(origin, error) from None
    raise_all(shapes.problems)
    checks = tuple(dynamic_checks(tree, origin))
    return Statement(tuple(shapes.tables), checks, tuple(shapes.joined), tree, origin)


def dynamic_checks(tree: exp.Expr, origin: SqlOrigin) -> list[DynamicCheck]:
    """The calls whose table name is a literal; other names are not known before the run."""
    checks: list[tuple[int, DynamicCheck]] = []
    for call in tree.find_all(exp.Anonymous):
        name = call.expressions[0] if call.expressions else None
        if function_name(call) in TABLE_CALLS and isinstance(name, exp.Literal) and name.is_string:
            offset = offset_of(call) or 0
            where = origin.locate(*origin.place(offset))
            checks.append((offset, DynamicCheck(name.name.lower(), _is_negated(call), where)))
    return [check for _, check in sorted(checks, key=lambda pair: pair[0])]


def _is_negated(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Not)


def raise_all(problems: list[UserError]) -> None:
    """Raise a single problem itself, several as InvalidPipeline in the order of the text."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise InvalidPipeline(in_text_order(problems))


def in_text_order(problems: list[UserError]) -> list[UserError]:
    """The problems sorted by their positions."""
    return sorted(problems, key=_position)


def _position(problem: StreamlingError) -> tuple[float, int]:
    return (float("inf"), 0) if problem.where is None else (problem.where.line, problem.where.column)


def too_deep(origin: SqlOrigin, cause: RecursionError) -> UserError:
    return origin.error(SQL_UNSUPPORTED, "unsupported SQL: nested too deeply", cause=cause)


def _tree(origin: SqlOrigin) -> exp.Expr:
    tokens = checked_tokens(origin)
    first = tokens[0]
    if first.text.lower() in _STATEMENTS:
        raise unsupported(origin, f"{first.text.upper()}; a transform must be a SELECT", first.start)
    if first.token_type not in _OPENINGS:
        keyword = similar_keyword(first.text)
        hint = f"did you mean {keyword}?" if keyword in ("SELECT", "WITH") else None
        message = f"a query must begin with SELECT or WITH, not with `{first.text}`"
        raise origin.error(SQL_SYNTAX, message, at=first.start, hint=hint)
    return tree_of(origin, tokens)
