"""Calls of functions in a syntax tree: finds the function of a call, or the error if there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from sqlglot import exp

from streamling.errors import SQL_UNKNOWN_FUNCTION, UserError
from streamling.plan.sql.constructs import AGGREGATE, ROW_BY_ROW, WINDOW, unsupported
from streamling.plan.sql.functions import ADDED, AGGREGATES, FUNCTIONS, WINDOW_FUNCTIONS, Function
from streamling.plan.sql.origin import SqlOrigin

UNNEST = "unnest"

# Names that other engines use for functions which have another name here.
_OTHER_ENGINES = {
    name: ours
    for name, ours in {
        "array_size": "array_length",
        "char_length": "character_length",
        "charindex": "strpos",
        "date_format": "to_char",
        "element_at": "array_element",
        "endwith": "ends_with",
        "explode": UNNEST,
        "format_datetime": "to_char",
        "generate_series": "_gs_generate_series",
        "get_json_object": "json_value",
        "getdate": "now",
        "gen_random_uuid": "uuid",
        "generateuuidv4": "uuid",
        "json_extract": "json_query",
        "json_extract_scalar": "json_value",
        "keccak256": "_gs_keccak256",
        "len": "length",
        "posexplode": "array_enumerate",
        "rand": "random",
        "regexp_matches": "regexp_extract_all",
        "size": "cardinality",
        "str_to_date": "to_date",
        "strftime": "to_char",
        "string_split": "split",
        "substring_index": "split_part",
        "to_json": "json_string",
        "ucase": "upper",
        "lcase": "lower",
        "unix_timestamp": "to_unixtime",
        "xxhash64": "_gs_xxhash",
    }.items()
    if ours in FUNCTIONS or ours == UNNEST
}


def function_name(node: exp.Expr) -> str:
    """The name of the called function; case is ignored."""
    return node.name.lower()


def find_function(origin: SqlOrigin, node: exp.Expr, added: Mapping[str, Function]) -> Function | UserError:
    """The function of a call, or the error if there is none; `added` ones come first, then those of plugins."""
    name = function_name(node)
    function = added.get(name) or (ADDED[name](origin.node) if name in ADDED else FUNCTIONS.get(name))
    if function is not None:
        return function if function.usage.startswith(f"{name}(") else replace(function, usage=_usage(name, function))
    if name in AGGREGATES:
        return unsupported(origin, f"{AGGREGATE} `{name}`", node, hint=ROW_BY_ROW)
    if name in WINDOW_FUNCTIONS:
        return unsupported(origin, f"{WINDOW} `{name}`", node, hint=ROW_BY_ROW)
    return origin.error(SQL_UNKNOWN_FUNCTION, _unknown(name, [*added, *ADDED, *FUNCTIONS]), at=node)


def _usage(name: str, function: Function) -> str:
    """The usage of a function under another of its names."""
    return name + function.usage[function.usage.index("(") :]


def _unknown(name: str, known: list[str]) -> str:
    ours = _OTHER_ENGINES.get(name)
    if ours is not None:
        return f"function `{name}` is not supported yet. Did you mean `{ours}`?"
    near = get_close_matches(name, known, n=1, cutoff=0.7)
    if near:
        return f"function `{name}` is not known or not supported yet. Did you mean `{near[0]}`?"
    return f"function `{name}` is not supported yet"
