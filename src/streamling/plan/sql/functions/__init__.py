"""The function table: every function of the language, by family, and the names that are refused on purpose."""

from __future__ import annotations

from collections.abc import Callable

from streamling.plan.sql.functions import (
    chance,
    conditionals,
    conversions,
    digests,
    json,
    lists,
    mathematics,
    own,
    pieces,
    regexps,
    structs,
    texts,
    times,
    wide_integers,
)
from streamling.plan.sql.functions.signature import Function

FAMILIES = {
    "Text": texts,
    "Pieces of text": pieces,
    "Numbers": mathematics,
    "Choosing": conditionals,
    "Dates and times": times,
    "Regular expressions": regexps,
    "Lists": lists,
    "Structs and maps": structs,
    "Conversions": conversions,
    "Digests": digests,
    "JSON": json,
    "Wide integers": wide_integers,
    "Chance": chance,
    "Streamling's own": own,
}
"""Modules by what their functions are about, in the order of the documentation."""

FUNCTIONS: dict[str, Function] = {
    name: function for family in FAMILIES.values() for name, function in family.FUNCTIONS.items()
}

ADDED: dict[str, Callable[[str], Function]] = {}
"""Functions of plugins, made for the node that calls them; they come before those of the same name in the table."""


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
