"""Calls of plugin functions, which Python workers compute, in the Spark text of a query."""

from __future__ import annotations

import re

WORKER_CALL = "streamling_plugin_function_"
"""The prefix of such functions in Spark; no function of Spark has it."""

# Literals and quoted names are one token each, so that their contents are not read as punctuation.
_TOKENS = re.compile(rf"'(?:\\.|[^'\\])*'|`(?:``|[^`])*`|->|[(),]|{WORKER_CALL}(?P<name>\w+)")


def call_in_lambda(text: str) -> str | None:
    """The name of a function that is called inside a lambda, or None. Spark cannot call a worker there.

    The compiler writes lambdas where a text uses an argument several times, and where it processes a list.
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
