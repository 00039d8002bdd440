"""The names of SQL constructs, for the errors about unsupported ones."""

from __future__ import annotations

import re

from sqlglot import ErrorLevel, exp

from streamling.errors import SQL_UNSUPPORTED, UserError
from streamling.plan.sql.dialect import Streamling
from streamling.plan.sql.origin import SqlOrigin

AGGREGATE = "aggregate function"
WINDOW = "window function"
ROW_BY_ROW = "a transform works row by row; do this in the target, for example in a view"
"""The hint for constructs that need several rows."""

_NAMES: dict[type[exp.Expr], str] = {
    exp.Subquery: "subquery inside an expression",
    exp.Select: "subquery inside an expression",
    exp.Exists: "EXISTS",
    exp.Any: "ANY",
    exp.All: "ALL",
    exp.Window: WINDOW,
    exp.Filter: "aggregate FILTER",
    exp.Distinct: "DISTINCT",
    exp.Star: "* as an argument",
    exp.Tuple: "row value (a, b)",
    exp.Lambda: "lambda",
    exp.Placeholder: "parameter",
    exp.Parameter: "parameter",
    exp.AtTimeZone: "AT TIME ZONE",
    exp.Alias: "alias inside an expression",
    exp.Lateral: "LATERAL",
    exp.Unnest: "UNNEST in FROM",
    exp.Values: "VALUES",
    exp.Concat: "adjacent text literals",
    exp.RawString: "$$..$$ literal",
    exp.Struct: "struct literal {..}",
    exp.JSONExtract: "operator `->`",
    exp.JSONExtractScalar: "operator `->>`",
}
_HINTS: dict[type[exp.Expr], str] = {
    exp.JSONExtract: "use json_query(column, '$.key')",
    exp.JSONExtractScalar: "use json_value(column, '$.key')",
    exp.Window: ROW_BY_ROW,
    exp.Filter: ROW_BY_ROW,
}
_MAX_LENGTH = 60


def construct(node: exp.Expr) -> str:
    """The name of a construct, with its SQL text if the name alone is not clear."""
    known = _NAMES.get(type(node))
    if known is not None:
        return known
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).lower()
    text = sql_of(node)
    return f"{kind} `{text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + '..'}`"


def sql_of(node: exp.Expr) -> str:
    """A tree as SQL text for messages and column names."""
    return node.sql(
        dialect=Streamling, comments=False, normalize_functions="lower", unsupported_level=ErrorLevel.IGNORE
    )


def unsupported(origin: SqlOrigin, what: str, at: exp.Expr | int | None, *, hint: str | None = None) -> UserError:
    """The error about an unsupported construct."""
    only = f"; {origin.only}" if origin.only else ""
    if hint is None and isinstance(at, exp.Expr):
        hint = _HINTS.get(type(at))
    return origin.error(SQL_UNSUPPORTED, f"unsupported SQL: {what}{only}", at=at, hint=hint)
