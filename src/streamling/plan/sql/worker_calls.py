"""Calls that Python workers compute, in the Spark text of a query: where they cannot stand."""

from __future__ import annotations

import re

WORKER_CALL = "streamling_plugin_function_"
"""Before the names of such functions in Spark: none of its own begins like that."""

# Literals and quoted names are one token each, so that nothing in them is taken for a sign.
_TOKENS = re.compile(rf"'(?:\\.|[^'\\])*'|`(?:``|[^`])*`|->|[(),]|{WORKER_CALL}(?P<name>\w+)")


def call_in_lambda(text: str) -> str | None:
    """The name of a function that is called inside a lambda, where Spark cannot hand rows to a worker; None if none is.

    Texts have lambdas where an argument stands in them several times, and where they go through a list.
    """
    lambdas = [False]  # for each open parenthesis: whether a lambda's arrow was seen since its last comma
    for token in _TOKENS.finditer(text):
        match token[0]:
            case "(":
                lambdas.append(False)
            case ")":
                lambdas.pop()
            case ",":
                lambdas[-1] = False
            case "->":
                lambdas[-1] = True
            case _ if token["name"] and any(lambdas):
                return token["name"]
    return None
