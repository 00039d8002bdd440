"""The shapes of query that a streaming transform accepts. Every branch and every nested query is checked.

A transform is stateless and works row by row: a SELECT reads one input and makes zero or more rows of each row. It may
join lookups, which add columns to a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from sqlglot import exp

from streamling.errors import SQL_SYNTAX, UserError
from streamling.plan.sql.constructs import AGGREGATE, ROW_BY_ROW, WINDOW, construct, unsupported
from streamling.plan.sql.functions import AGGREGATES, WINDOW_FUNCTIONS, is_function
from streamling.plan.sql.origin import SqlOrigin
from streamling.plan.sql.scope import name_of

_CLAUSES = {
    "distinct": "DISTINCT",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "locks": "FOR UPDATE",
    "into": "SELECT INTO",
    "hint": "hint",
    "match": "MATCH_RECOGNIZE",
    "ordinality": "WITH ORDINALITY",
    "only": "ONLY",
    "by_name": "BY NAME",
    "connect": "CONNECT BY",
    "version": "AS OF (time travel)",
    "kind": "SELECT AS",
    "prewhere": "PREWHERE",
    "changes": "CHANGES",
    "format": "FORMAT",
    "settings": "SETTINGS",
    "partition": "PARTITION",
    "hints": "table hint",
    "rows_from": "ROWS FROM",
}
_CLAUSE_HINTS = dict.fromkeys(("distinct", "group", "having", "qualify", "windows", "order"), ROW_BY_ROW)
_ACCEPTED: dict[type[exp.Expr], set[str]] = {
    exp.Select: {"expressions", "from_", "where", "with_"},
    exp.Union: {"this", "expression", "distinct", "with_"},
    exp.Subquery: {"this", "alias", "with_"},
    exp.Table: {"this", "db", "catalog", "alias"},
}
_JOIN_HINT = (
    "a transform reads one stream: join two streams in the target, for example in a view; a table that changes rarely "
    "can be joined as a transform of type lookup"
)
_LOOKUP_HINT = "write FROM stream JOIN lookup ON stream.column = lookup.key, or LEFT JOIN"
# JOIN, INNER JOIN, LEFT JOIN, LEFT OUTER JOIN.
_JOINS = (("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER"))
_SET_OPERATIONS: dict[type[exp.Expr], str] = {exp.Intersect: "INTERSECT", exp.Except: "EXCEPT between queries"}


@dataclass(slots=True)
class Shapes:
    """One pass over a statement: collects the tables it reads and all unsupported constructs.

    lookups   the names of tables that can be joined, and only be joined
    joined    those that the statement joins
    """

    origin: SqlOrigin
    lookups: Collection[str] = ()
    tables: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    problems: list[UserError] = field(default_factory=list)

    def refuse(self, what: str, at: exp.Expr | None, *, hint: str | None = None) -> None:
        self.problems.append(unsupported(self.origin, what, at, hint=hint))

    def query(self, node: exp.Expr, known: frozenset[str] = frozenset()) -> None:
        """Check a query; `known` are the common table expressions that it may name."""
        for branch in branches(node):
            self._branch(branch, known)

    def _branch(self, node: exp.Expr, known: frozenset[str]) -> None:
        if isinstance(node, exp.Union | exp.Select | exp.Subquery):
            self._clauses(node)
            known = self._ctes(node.args.get("with_"), known)
        if isinstance(node, exp.Select):
            self._select(node, known)
        elif isinstance(node, exp.Union):
            if node.args.get("distinct"):
                self.refuse("UNION without ALL; only UNION ALL is supported", node.expression)
            self.query(node.this, known)
            self.query(node.expression, known)
        elif isinstance(node, exp.Subquery):
            self.query(node.this, known)
        else:
            self.refuse(_SET_OPERATIONS.get(type(node)) or construct(node), node)

    def _clauses(self, node: exp.Expr) -> None:
        accepted = _ACCEPTED[type(node)]
        for name, value in node.args.items():
            grouped = name == "having" and node.args.get("group") is not None
            if value and name not in accepted and name != "joins" and not grouped:
                clause = value[0] if isinstance(value, list) else value
                self.refuse(
                    _CLAUSES.get(name, name.strip("_").replace("_", " ").upper()),
                    clause if isinstance(clause, exp.Expr) else node,
                    hint=_CLAUSE_HINTS.get(name),
                )
        for join in node.args.get("joins") or ():
            if not isinstance(node, exp.Select) or not self._joins_lookup(join):
                self.refuse(_join_name(join), join, hint=self._join_hint(join))

    def _join_hint(self, join: exp.Expr) -> str:
        name = table_name(join.this) if isinstance(join.this, exp.Table) else ""
        near = get_close_matches(name, self.lookups, n=1)
        return f"did you mean the lookup '{near[0]}'?" if near else _JOIN_HINT

    def _joins_lookup(self, join: exp.Expr) -> bool:
        """Whether the other side is a lookup; then its form is checked, too."""
        table = unparenthesized(join.this)
        if not isinstance(table, exp.Table) or table_name(table) not in self.lookups or cte_of(table) is not None:
            return False
        name, (method, side, kind) = table_name(table), _join_words(join)
        on = join.args.get("on")
        if method or (side, kind) not in _JOINS or join.args.get("using") or on is None:
            what = f"{'JOIN .. USING' if join.args.get('using') else _join_name(join)} with the lookup '{name}'"
            self.refuse(what, join, hint=_LOOKUP_HINT)
            return True
        self._clauses(table)
        self._check_alias(table)
        self._expression(on)
        if name not in self.joined:
            self.joined.append(name)
        return True

    def _ctes(self, with_: exp.Expr | None, known: frozenset[str]) -> frozenset[str]:
        if with_ is None:
            return known
        if with_.args.get("recursive"):
            self.refuse("recursive WITH", with_)
            known = known | {name_of(cte.args["alias"].this) for cte in with_.expressions}
        for cte in with_.expressions:
            self.query(cte.this, known)
            known = known | {name_of(cte.args["alias"].this)}
        return known

    def _select(self, node: exp.Select, known: frozenset[str]) -> None:
        if not node.expressions:
            self.problems.append(self.origin.error(SQL_SYNTAX, "the SELECT has no columns", at=node))
            return
        for expression in node.expressions:
            self._expression(expression, grouped=node.args.get("group") is not None)
        source = node.args.get("from_")
        if source is None:
            self.refuse("SELECT without FROM", node)
        else:
            self._relation(source.this, known)
        where = node.args.get("where")
        if where is not None:
            self._expression(where.this)

    def _relation(self, node: exp.Expr, known: frozenset[str]) -> None:
        node = unparenthesized(node)
        if isinstance(node, exp.Subquery):
            self.query(node, known)
        elif isinstance(node, exp.Table) and table_parts(node):
            self._clauses(node)
            self._table(node, known)
        elif isinstance(node, exp.Table):
            self.refuse("table function in FROM", node)
        else:
            self.refuse(construct(node), node)

    def _check_alias(self, node: exp.Table) -> None:
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            self.refuse("column names after the alias of an input", alias)

    def _table(self, node: exp.Table, known: frozenset[str]) -> None:
        self._check_alias(node)
        name = table_name(node)
        if cte_name(node) in known:
            return
        if name in self.lookups:
            self.refuse(f"the lookup '{name}' in FROM", node, hint=_LOOKUP_HINT)
        elif name not in self.tables:
            self.tables.append(name)

    def _expression(self, node: exp.Expr, *, grouped: bool = False) -> None:
        """Refuse constructs that no transform can support; the compiler refuses all others that it does not know.

        Aggregates together with a GROUP BY count as one mistake, as does its HAVING.
        """
        for what, at in _outermost(node):
            if not (grouped and what.startswith(AGGREGATE)):
                self.refuse(what, at, hint=ROW_BY_ROW if what.startswith((AGGREGATE, WINDOW)) else None)


def _outermost(node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    pending = [node]
    while pending:
        current = pending.pop()
        what = _unsupported_name(current)
        if what is not None:
            yield what, current
        else:
            pending.extend(reversed(list(current.iter_expressions())))


def _unsupported_name(node: exp.Expr) -> str | None:
    """The name of the construct, if no transform can support it."""
    if isinstance(node, exp.Exists | exp.Any | exp.All):
        return construct(node)
    if isinstance(node, exp.Query):
        return "subquery inside an expression"
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        return "subquery inside an expression (IN)"
    if isinstance(node, exp.Window | exp.Filter):
        inner = node.this.name.lower() if isinstance(node.this, exp.Anonymous) else ""
        return f"{construct(node)} `{inner}`" if inner else construct(node)
    if isinstance(node, exp.Anonymous) and not is_function(node.name.lower()):
        name = node.name.lower()
        kind = AGGREGATE if name in AGGREGATES else WINDOW if name in WINDOW_FUNCTIONS else None
        return f"{kind} `{name}`" if kind else None
    return None


def _join_words(join: exp.Expr) -> tuple[str, str, str]:
    method, side, kind = (str(join.args.get(part) or "") for part in ("method", "side", "kind"))
    return method, side, kind


def is_inner(join: exp.Expr) -> bool:
    """Whether an accepted join drops rows without a match."""
    return not join.args.get("side")


def drops_rows(tree: exp.Expr) -> bool:
    """Whether a WHERE or an inner join in a query may drop rows."""
    return tree.find(exp.Where) is not None or any(is_inner(join) for join in tree.find_all(exp.Join))


def _join_name(join: exp.Expr) -> str:
    if isinstance(join.this, exp.Unnest | exp.Lateral):
        return construct(join.this)
    words = _join_words(join)
    plain = not any(words) and not join.args.get("on") and not join.args.get("using")
    return "several items in FROM" if plain else " ".join(w for w in (*words, "JOIN") if w)


def branches(node: exp.Expr) -> list[exp.Expr]:
    """The branches of a chain of UNION ALL without own clauses, in order; any other query is its only branch."""
    others: list[exp.Expr] = []
    while isinstance(node, exp.Union) and not node.args.get("distinct") and _has_no_clauses(node):
        others.append(node.expression)
        node = node.this
    return [node, *reversed(others)]


def _has_no_clauses(node: exp.Union) -> bool:
    return not any(value for name, value in node.args.items() if name not in ("this", "expression", "distinct"))


def unparenthesized(node: exp.Expr) -> exp.Expr:
    """`FROM (t)` means `FROM t`."""
    while isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        inner, alias = node.this, node.args.get("alias")
        if alias is not None and inner.args.get("alias") is None:
            inner.set("alias", alias)
        node = inner
    return node


def table_parts(node: exp.Table) -> list[exp.Identifier]:
    """The identifiers of a table reference; empty if it is something else, for example a function."""
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    return parts if len(parts) == len(node.parts) else []


def table_name(node: exp.Table) -> str:
    """The reference name of an input, in lower case even if it is quoted."""
    return ".".join(part.name for part in table_parts(node)).lower()


def cte_name(node: exp.Table) -> str | None:
    """The name of the common table expression that a table reference may mean."""
    parts = table_parts(node)
    return name_of(parts[0]) if len(parts) == 1 else None


def cte_of(table: exp.Table) -> exp.Expr | None:
    """The common table expression that a table reference means: the nearest one that is defined before it."""
    name, inside = cte_name(table), {id(table)}
    around = table.parent
    while around is not None:
        query: exp.Expr | None = None
        with_ = around.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            if id(cte) in inside:
                break
            query = cte.this if name_of(cte.args["alias"].this) == name else query
        if query is not None:
            return query
        inside.add(id(around))
        around = around.parent
    return None
