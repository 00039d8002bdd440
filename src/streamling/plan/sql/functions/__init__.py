"""The function table: all functions of the language by family, and the names of unsupported aggregates."""

from __future__ import annotations

from collections.abc import Callable

from streamling.plan.sql.functions import (
    conditionals,
    conversions,
    digests,
    json,
    lists,
    mathematics,
    random_values,
    regexps,
    streamling_functions,
    structs,
    text_parts,
    texts,
    times,
    wide_integers,
)
from streamling.plan.sql.functions.signature import Function

FAMILIES = {
    "Text": texts,
    "Parts of text": text_parts,
    "Numbers": mathematics,
    "Conditionals": conditionals,
    "Dates and times": times,
    "Regular expressions": regexps,
    "Lists": lists,
    "Structs and maps": structs,
    "Conversions": conversions,
    "Digests": digests,
    "JSON": json,
    "Wide integers": wide_integers,
    "Random values": random_values,
    "Streamling functions": streamling_functions,
}
"""Modules by the titles of their sections, in the order of the documentation."""

FUNCTIONS: dict[str, Function] = {
    name: function for family in FAMILIES.values() for name, function in family.FUNCTIONS.items()
}

ADDED: dict[str, Callable[[str], Function]] = {}
"""Plugin functions by name, each made for the node that calls it; they override those of the same name in the table."""


def is_function(name: str) -> bool:
    return name in ADDED or name in FUNCTIONS


# fmt: off
AGGREGATES = frozenset({
    "any_value", "approx_distinct", "approx_median", "approx_percentile_cont", "approx_percentile_cont_with_weight",
    "array_agg", "avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "corr", "count", "covar", "covar_pop",
    "covar_samp", "every", "first_value", "grouping", "json_arrayagg_absent_on_null", "json_arrayagg_null_on_null",
    "json_objectagg_absent_on_null", "json_objectagg_null_on_null", "last_value", "listagg", "max", "mean", "median",
    "min", "nth_value", "percentile_cont", "quantile_cont", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept",
    "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "stddev", "stddev_pop", "stddev_samp", "string_agg",
    "sum", "var", "var_pop", "var_population", "var_samp", "var_sample",
})
# fmt: on
# fmt: off
WINDOW_FUNCTIONS = frozenset({
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead",
})
# fmt: on

__all__ = ["ADDED", "AGGREGATES", "FAMILIES", "FUNCTIONS", "WINDOW_FUNCTIONS", "Function", "is_function"]
