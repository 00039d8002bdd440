"""A column of every type can be selected, tested for NULL and used in CASE; and the type in which it is computed."""

from __future__ import annotations

import pytest

from streamling.errors import UserError
from streamling.plan.sql import compile_expression, compile_query, parse
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DATE64,
    DURATION,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    I256,
    INT8,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    NULL,
    OPERATION_FIELD,
    STRING,
    TIME32,
    TIME64,
    TIMESTAMP,
    TIMESTAMP_UTC,
    U256,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)

CARRIERS: dict[DataType, str] = {
    NULL: "VOID",
    BOOLEAN: "BOOLEAN",
    INT8: "TINYINT",
    INT16: "SMALLINT",
    INT32: "INT",
    INT64: "BIGINT",
    UINT8: "SMALLINT",
    UINT16: "INT",
    UINT32: "BIGINT",
    UINT64: "DECIMAL(20,0)",
    FLOAT16: "FLOAT",
    FLOAT32: "FLOAT",
    FLOAT64: "DOUBLE",
    STRING: "STRING",
    BINARY: "BINARY",
    DataType("binary", length=32): "BINARY",
    DATE: "DATE",
    DATE64: "DATE",
    TIME32: "TIME(6)",
    TIME64: "TIME(6)",
    TIMESTAMP: "TIMESTAMP_NTZ",
    TIMESTAMP_UTC: "TIMESTAMP",
    DataType("timestamp", unit="s"): "TIMESTAMP_NTZ",
    DataType("timestamp", unit="ns", zone="Europe/Berlin"): "TIMESTAMP",
    DURATION: "INTERVAL DAY TO SECOND",
    INTERVAL: "STRING",
    decimal(38, 2): "DECIMAL(38,2)",
    decimal(39, 2): "STRING",
    decimal_arb(100, 10): "STRING",
    U256: "STRING",
    I256: "STRING",
    list_of(UINT8): "ARRAY<SMALLINT>",
    map_of(U256, UINT32): "MAP<BIGINT, STRING>",
    struct_of(Field("a", TIME32), Field("b", list_of(I256))): "STRUCT<`a`: TIME(6), `b`: ARRAY<STRING>>",
}


@pytest.mark.parametrize("type_", CARRIERS, ids=str)
def test_carrier(type_: DataType) -> None:
    assert spark_type(type_) == CARRIERS[type_]


@pytest.mark.parametrize("type_", CARRIERS, ids=str)
@pytest.mark.parametrize("sql", ["x", "(x)", "CASE WHEN b THEN x END", "coalesce(x, x)", "nvl(x, NULL)"])
def test_a_column_keeps_its_type(sql: str, type_: DataType) -> None:
    columns = Schema((Field("x", type_), Field("b", BOOLEAN)))
    assert compile_expression(sql, columns, node="n").type == type_
    assert compile_expression(f"{sql} IS NOT NULL", columns, node="n").type == BOOLEAN


@pytest.mark.parametrize("type_", CARRIERS, ids=str)
def test_a_column_keeps_its_type_through_queries(type_: DataType) -> None:
    schema = Schema((Field("x", type_), OPERATION_FIELD))
    sql = "WITH c AS (SELECT x FROM t WHERE x IS NULL) SELECT * FROM c UNION ALL SELECT x FROM t"
    query = compile_query(parse(sql, node="n"), {"t": schema}, {"t": "v"})
    assert query.schema == schema


@pytest.mark.parametrize(
    ("type_", "sql", "result"),
    [
        (UINT8, "x + x", "int16"),
        (UINT16, "x * 2", "int64"),
        (UINT32, "x + 1::int", "int64"),
        (UINT64, "x + 1", "decimal(21,0)"),
        (UINT64, "x * x", "decimal(38,0)"),
        (UINT64, "coalesce(x, 0)", "decimal(20,0)"),
        (FLOAT16, "x + x", "float32"),
        (DATE64, "x + interval '1 day'", "date32"),
        (DATE64, "x - x", "int64"),
        (DataType("timestamp", unit="ms"), "x + interval '1 day'", "timestamp"),
        (DataType("timestamp", unit="ms"), "coalesce(x, x::timestamp)", "timestamp"),
        (DataType("timestamp", unit="ms", zone="UTC"), "date_trunc('day', x)", "timestamp(UTC)"),
        (DataType("binary", length=4), "coalesce(x, x'00')", "binary"),
        (TIME32, "x + interval '1 hour'", "time64"),
        (list_of(UINT8), "x[1]", "uint8"),
        (list_of(UINT8), "x || [1]", "list<int64>"),
        (map_of(UINT8, INT32), "x[1]", "uint8"),
        (U256, "coalesce(x, 5)", "u256"),
        (decimal(60, 0), "x::text", "string"),
    ],
    ids=str,
)
def test_what_it_computes_as(type_: DataType, sql: str, result: str) -> None:
    assert str(compile_expression(sql, Schema((Field("x", type_),)), node="n").type) == result


@pytest.mark.parametrize("type_", [INTERVAL, decimal(39, 2), U256, list_of(I256)], ids=str)
@pytest.mark.parametrize("sql", ["x + 1", "- x", "greatest(x, x)", "x || x::bytea", "abs(x)"])
def test_what_only_stands_for_a_value_cannot_be_computed_with(sql: str, type_: DataType) -> None:
    with pytest.raises(UserError):
        compile_expression(sql, Schema((Field("x", type_),)), node="n")
