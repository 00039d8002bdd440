"""The input of most SQL tests, and shortcuts to compile SQL over it."""

from __future__ import annotations

from streamling.errors import InvalidPipeline, StreamlingError, UserError, Where
from streamling.plan.sql import Query, compile_expression, compile_query, parse
from streamling.plan.types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIMESTAMP,
    TIMESTAMP_UTC,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
    map_of,
)

ORDERS = Schema(
    (
        Field("id", INT64, nullable=False),
        Field("qty", INT32),
        Field("price", decimal(10, 2)),
        Field("rate", FLOAT64),
        Field("small", FLOAT32),
        Field("name", STRING),
        Field("userId", STRING),
        Field("paid", BOOLEAN),
        Field("day", DATE),
        Field("at", TIMESTAMP),
        Field("seen", TIMESTAMP_UTC),
        Field("tags", list_of(STRING)),
        Field("address", DataType("struct", fields=(Field("city", STRING), Field("Zip", STRING)))),
        Field("attributes", map_of(INT64)),
        OPERATION_FIELD,
    )
)
PAIR = Schema((Field("a", INT64, nullable=False), Field("b", STRING), OPERATION_FIELD))
INPUTS = {"orders": ORDERS, "pair": PAIR, "shop.pair": PAIR, "user.events": PAIR, "a.b.c": PAIR}
VIEWS = {name: f"in_{number}" for number, name in enumerate(INPUTS)}


def compiled(sql: str) -> Query:
    return compile_query(parse(sql, node="n", locate=in_file), INPUTS, VIEWS)


def columns(sql: str) -> list[str]:
    """The output columns as `name type`, with `!` where NULL is impossible."""
    return [f"{f.name} {f.type}{'' if f.nullable else '!'}" for f in compiled(sql).schema]


def spark(sql: str) -> str:
    """The Spark text of an expression over ORDERS."""
    return compile_expression(sql, ORDERS, node="n").text


def type_of(sql: str) -> str:
    return str(compile_expression(sql, ORDERS, node="n").type)


def in_file(line: int, column: int) -> Where:
    return Where("p.yaml", line, column)


def problems(sql: str) -> list[StreamlingError]:
    """The problems of a statement."""
    try:
        compiled(sql)
    except InvalidPipeline as error:
        return list(error.problems)
    except UserError as error:
        return [error]
    return []


def codes(sql: str) -> list[str]:
    return [problem.code for problem in problems(sql)]
