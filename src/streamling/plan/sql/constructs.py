"""What users call the constructs of SQL, for the errors that refuse one."""

from __future__ import annotations

import re

from sqlglot import ErrorLevel, exp

from streamling.errors import SQL_UNSUPPORTED, UserError
from streamling.plan.sql.dialect import Streamling
from streamling.plan.sql.origin import Origin

AGGREGATE = "aggregate function"
WINDOW = "window function"

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
}
_SHOWN = 60


def construct(node: exp.Expr) -> str:
    """The name of a construct, with the text where the name alone says little."""
    known = _NAMES.get(type(node))
    if known is not None:
        return known
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).lower()
    text = sql_of(node)
    return f"{kind} `{text if len(text) <= _SHOWN else text[:_SHOWN] + '..'}`"


def sql_of(node: exp.Expr) -> str:
    """A tree as SQL, for people to read."""
    return node.sql(
        dialect=Streamling, comments=False, normalize_functions="lower", unsupported_level=ErrorLevel.IGNORE
    )


def unsupported(origin: Origin, what: str, at: exp.Expr | int | None, *, hint: str | None = None) -> UserError:
    """The refusal of a construct."""
    only = f"; {origin.only}" if origin.only else ""
    return origin.error(SQL_UNSUPPORTED, f"unsupported SQL: {what}{only}", at=at, hint=hint)
