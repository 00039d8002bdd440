"""The SQL of pipelines, compiled to Spark SQL with the planner's own types.

    parse               text -> Statement: syntax and shapes checked, inputs known
    check_statement     Statement -> what is wrong with it, as far as it can be told while the inputs are unknown
    check_expression    the same for the text of an expression
    compile_query       Statement + schemas of the inputs -> Query: Spark text, output schema
    compile_expression  text + columns -> Expression

Neither Spark nor Arrow is needed. No object of the parser leaves this package. The texts mean what they should in a
Spark session with `SESSION_SETTINGS`.
"""

from __future__ import annotations

from streamling.plan.spark_settings import SESSION_SETTINGS
from streamling.plan.sql.functions.signature import Function, Parameter
from streamling.plan.sql.origin import Locate
from streamling.plan.sql.queries import Expression, Query, compile_expression, compile_query
from streamling.plan.sql.statements import DynamicCheck, Statement, parse
from streamling.plan.sql.untyped import check_expression, check_statement
from streamling.plan.sql.values import Value

__all__ = [
    "SESSION_SETTINGS",
    "DynamicCheck",
    "Expression",
    "Function",
    "Locate",
    "Parameter",
    "Query",
    "Statement",
    "Value",
    "check_expression",
    "check_statement",
    "compile_expression",
    "compile_query",
    "parse",
]
