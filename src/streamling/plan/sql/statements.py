"""Statements: SQL text, parsed, with its shapes checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import TokenType, exp

from streamling.errors import SQL_SYNTAX, SQL_UNSUPPORTED, InvalidPipeline, StreamlingError, UserError, Where
from streamling.plan.sql.calls import UNNEST, function_name
from streamling.plan.sql.constructs import unsupported
from streamling.plan.sql.functions.own import DYNAMIC_TABLE_CHECK
from streamling.plan.sql.origin import Locate, Origin, nowhere, offset_of
from streamling.plan.sql.shapes import Shapes, table_name
from streamling.plan.sql.syntax import checked_tokens, meant_keyword, tree_of

_OPENINGS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES})
# fmt: off
_STATEMENTS = frozenset({
    "alter", "analyze", "attach", "begin", "call", "cache", "comment", "commit", "copy", "create", "declare",
    "deallocate", "delete", "desc", "describe", "drop", "execute", "explain", "export", "grant", "import", "insert",
    "install", "kill", "load", "lock", "merge", "pragma", "prepare", "refresh", "replace", "reset", "revoke",
    "rollback", "set", "show", "start", "truncate", "uncache", "unload", "update", "upsert", "use", "vacuum",
})
# fmt: on


# A longer text takes the parser longer than anybody waits: lists of values belong into a dynamic table.
LONGEST = 500_000


@dataclass(frozen=True, slots=True)
class DynamicCheck:
    """One call of `dynamic_table_check`.

    table     the reference name of the table
    negated   the call stands directly under NOT
    """

    table: str
    negated: bool
    where: Where | None


@dataclass(frozen=True)
class Statement:
    """A parsed query whose shapes are accepted.

    tables           the inputs it reads, as reference names, each once, in order of appearance; CTE names are not
                     tables
    checked_tables   the dynamic tables it asks, every call, in order of appearance
    """

    tables: tuple[str, ...]
    checked_tables: tuple[DynamicCheck, ...]
    _tree: exp.Expr = field(repr=False, compare=False)
    _origin: Origin = field(compare=False)

    @property
    def plain(self) -> bool:
        """Whether one row in gives at most one row out, of one input: projections and filters, nothing else."""
        calls = (function_name(call) for call in self._tree.find_all(exp.Anonymous))
        return len(self.tables) == 1 and self._tree.find(exp.Union, exp.Explode) is None and UNNEST not in calls

    def place_of(self, table: str) -> Where | None:
        """Where the query names a table first."""
        offsets = [offset_of(node) for node in self._tree.find_all(exp.Table) if table_name(node) == table]
        first = min((offset for offset in offsets if offset is not None), default=None)
        return None if first is None else self._origin.locate(*self._origin.place(first))


def parse(sql: str, *, node: str, locate: Locate = nowhere, only: str | None = None) -> Statement:
    """The one query in `sql`. Raises UserError, or InvalidPipeline with all problems of its shape.

    only   a sentence that every refusal of a construct ends with: what alone this node supports
    """
    origin = Origin(sql, node, locate, only)
    if len(sql) > LONGEST:
        raise unsupported(origin, f"longer than {LONGEST:,} characters", None)
    try:
        tree = _tree(origin)
        shapes = Shapes(origin)
        shapes.query(tree)
    except RecursionError as error:
        raise too_deep(origin, error) from None
    raise_all(shapes.problems)
    return Statement(tuple(shapes.tables), tuple(dynamic_checks(tree, origin)), tree, origin)


def dynamic_checks(tree: exp.Expr, origin: Origin) -> list[DynamicCheck]:
    """The calls of `dynamic_table_check` anywhere in a tree; only a name that is a literal is known before rows are."""
    found: list[tuple[int, DynamicCheck]] = []
    for call in tree.find_all(exp.Anonymous):
        name = call.expressions[0] if call.expressions else None
        if function_name(call) == DYNAMIC_TABLE_CHECK and isinstance(name, exp.Literal) and name.is_string:
            offset = offset_of(call) or 0
            where = origin.locate(*origin.place(offset))
            found.append((offset, DynamicCheck(name.name.lower(), _under_not(call), where)))
    return [check for _, check in sorted(found, key=lambda pair: pair[0])]


def _under_not(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Not)


def raise_all(problems: list[UserError]) -> None:
    """Raise one problem as itself, several as InvalidPipeline in the order of their places."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise InvalidPipeline(in_order(problems))


def in_order(problems: list[UserError]) -> list[UserError]:
    """The problems in the order of their places."""
    return sorted(problems, key=_place)


def _place(problem: StreamlingError) -> tuple[float, int]:
    return (float("inf"), 0) if problem.where is None else (problem.where.line, problem.where.column)


def too_deep(origin: Origin, cause: RecursionError) -> UserError:
    return origin.error(SQL_UNSUPPORTED, "unsupported SQL: nested too deeply", cause=cause)


def _tree(origin: Origin) -> exp.Expr:
    found = checked_tokens(origin)
    first = found[0]
    if first.text.lower() in _STATEMENTS:
        raise unsupported(origin, f"{first.text.upper()}, only a SELECT can be a transform", first.start)
    if first.token_type not in _OPENINGS:
        keyword = meant_keyword(first.text)
        hint = f"did you mean {keyword}?" if keyword in ("SELECT", "WITH") else None
        message = f"a query begins with SELECT or WITH, not with `{first.text}`"
        raise origin.error(SQL_SYNTAX, message, at=first.start, hint=hint)
    return tree_of(origin, found)
