"""The types of columns in Postgres and ClickHouse."""

from __future__ import annotations

import pytest

from streamling.formats.clickhouse_types import NoClickHouseType, clickhouse_type
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
    STRING,
    TIME32,
    TIME64,
    TIMESTAMP,
    TIMESTAMP_UTC,
    U256,
    UINT8,
    UINT64,
    DataType,
    Field,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)
from streamling.sinks.postgres_aggregate.types import postgres_type


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("text", STRING),
        ("VARCHAR(20)", STRING),
        ("char ( 3 )", STRING),
        ("jsonb", STRING),
        ("smallint", INT16),
        ("Int", INT32),
        ("integer", INT32),
        ("bigint", INT64),
        ("real", FLOAT32),
        ("double  precision", FLOAT64),
        ("float", FLOAT64),
        ("bool", BOOLEAN),
        ("bytea", BINARY),
        ("date", DATE),
        ("timestamptz", TIMESTAMP),
        ("timestamp(3)", TIMESTAMP),
        ("numeric", decimal(38, 9)),
        ("numeric(30,2)", decimal(30, 2)),
        ("DECIMAL( 5 )", decimal(5, 0)),
        ("numeric(100,10)", decimal_arb(100, 10)),
    ],
)
def test_postgres_types_that_can_be_named(text: str, type_: DataType) -> None:
    assert postgres_type(text) == type_


@pytest.mark.parametrize(
    "text",
    [
        "money",
        "",
        "uuid",
        "text(5)",
        "int[]",
        "varchar(a)",
        "varchar(1,2)",
        "numeric(5,-1)",
        "numeric(1,2,3)",
        "numeric(2,3)",
        "numeric(0)",
        "numeric(1001)",
        "numeric()",
        "text); DROP TABLE x; --",
    ],
)
def test_other_postgres_types_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^is '"):
        postgres_type(text)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (BOOLEAN, "UInt8"),
        (INT8, "Int8"),
        (UINT8, "UInt8"),
        (UINT64, "UInt64"),
        (FLOAT16, "Float32"),
        (STRING, "String"),
        (BINARY, "String"),
        (DataType("binary", length=20), "FixedString(20)"),
        (DATE, "Date"),
        (DATE64, "DateTime"),
        (TIME32, "DateTime"),
        (TIME64, "DateTime64(9)"),
        (DataType("timestamp", unit="s"), "DateTime"),
        (DataType("timestamp", unit="ms"), "DateTime64(3)"),
        (TIMESTAMP_UTC, "DateTime64(6)"),
        (DataType("timestamp", unit="ns"), "DateTime64(9)"),
        (DURATION, "Int64"),
        (INTERVAL, "String"),
        (decimal(76, 5), "Decimal(76,5)"),
        (decimal_arb(50, 5), "Decimal(50,5)"),
        (U256, "UInt256"),
        (I256, "Int256"),
        (DataType("decimal_arb", precision=77, scale=0, native="u256"), "UInt256"),
    ],
)
def test_clickhouse_types(type_: DataType, text: str) -> None:
    assert clickhouse_type(type_, nullable=False) == text
    assert clickhouse_type(type_, nullable=True) == f"Nullable({text})"


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (list_of(INT64), "Array(Int64)"),
        (map_of(U256), "Map(String, UInt256)"),
        (
            struct_of(Field("a", INT64, nullable=False), Field("b c", STRING), Field("d", list_of(DATE))),
            "Tuple(a Int64, `b c` Nullable(String), d Array(Date))",
        ),
        (NULL, "Nullable(Nothing)"),
    ],
)
@pytest.mark.parametrize("nullable", [True, False])
def test_nested_clickhouse_types_are_never_nullable_themselves(type_: DataType, text: str, nullable: bool) -> None:
    assert clickhouse_type(type_, nullable=nullable) == text


@pytest.mark.parametrize("type_", [decimal_arb(77, 0), decimal_arb(78, 0), list_of(decimal_arb(80, 2))])
def test_numbers_that_clickhouse_cannot_hold(type_: DataType) -> None:
    with pytest.raises(NoClickHouseType, match="decimal_arb"):
        clickhouse_type(type_, nullable=True)
