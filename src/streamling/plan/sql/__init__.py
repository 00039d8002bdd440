"""The SQL of pipelines, compiled to Spark SQL with the planner's own types.

    parse               text -> Statement: syntax and shapes checked, inputs known
    check_statement     Statement -> its problems, as far as they can be found while the input columns are not known
    check_expression    the same for the text of an expression
    row_filters         Statement -> the parts of it that may drop updates and deletes
    compile_query       Statement + schemas of the inputs -> Query: Spark text, output schema
    compile_expression  text + columns -> Expression

Neither Spark nor Arrow is needed. No object of the parser leaves this package. The Spark texts are correct only in a
session with `SESSION_SETTINGS`.
"""

from __future__ import annotations

from streamling.plan.spark_settings import SESSION_SETTINGS
from streamling.plan.sql.calls import UNNEST
from streamling.plan.sql.changes import (
    RowFilter,
    carries_changes,
    condition_filter,
    deletion_problems,
    key_reads,
    row_filters,
)
from streamling.plan.sql.compiled import Expression, Query
from streamling.plan.sql.functions.signature import Function, Parameter
from streamling.plan.sql.joins import LookupJoin, LookupTable
from streamling.plan.sql.origin import Locate
from streamling.plan.sql.queries import compile_expression, compile_query
from streamling.plan.sql.statements import DynamicCheck, Statement, parse
from streamling.plan.sql.table_calls import CallLevel, TableCall
from streamling.plan.sql.untyped import check_expression, check_statement
from streamling.plan.sql.values import Value

__all__ = [
    "SESSION_SETTINGS",
    "UNNEST",
    "CallLevel",
    "DynamicCheck",
    "Expression",
    "Function",
    "Locate",
    "LookupJoin",
    "LookupTable",
    "Parameter",
    "Query",
    "RowFilter",
    "Statement",
    "TableCall",
    "Value",
    "carries_changes",
    "check_expression",
    "check_statement",
    "compile_expression",
    "compile_query",
    "condition_filter",
    "deletion_problems",
    "key_reads",
    "parse",
    "row_filters",
]
