"""Calls of functions in a tree: which function is meant, and the error when there is none."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from sqlglot import exp

from streamling.errors import SQL_UNKNOWN_FUNCTION, UserError
from streamling.plan.sql.constructs import AGGREGATE, WINDOW, unsupported
from streamling.plan.sql.functions import AGGREGATES, FUNCTIONS, WINDOW_FUNCTIONS, Function
from streamling.plan.sql.origin import Origin

UNNEST = "unnest"


def function_name(node: exp.Expr) -> str:
    """Names of functions are compared without regard to case."""
    return node.name.lower()


def called(origin: Origin, node: exp.Expr, added: Mapping[str, Function]) -> Function | UserError:
    """The function a call means, or why there is none; `added` ones come before those of the table."""
    name = function_name(node)
    found = added.get(name) or FUNCTIONS.get(name)
    if found is not None:
        return found
    if name in AGGREGATES:
        return unsupported(origin, f"{AGGREGATE} `{name}`", node)
    if name in WINDOW_FUNCTIONS:
        return unsupported(origin, f"{WINDOW} `{name}`", node)
    near = get_close_matches(name, [*added, *FUNCTIONS], n=1)
    suggestion = f". Did you mean `{near[0]}`?" if near else ""
    return origin.error(SQL_UNKNOWN_FUNCTION, f"function `{name}` is not supported yet{suggestion}", at=node)
