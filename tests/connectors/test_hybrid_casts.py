"""Columns of ClickHouse tables, cast by the server to the types that another system has chosen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from streamling.errors import PermanentError, UserError
from streamling.formats.clickhouse_casts import cast_expression
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT64,
    I256,
    INT32,
    INT64,
    OPERATION_FIELD,
    STRING,
    U256,
    DataType,
    Field,
    Schema,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)
from support.clickhouse_samples import everything, source
from support.clickhouse_server import ClickHouseServer

pytestmark = pytest.mark.servers

MS = DataType("timestamp", unit="ms", zone="UTC")
# The type of the column, its value in SQL, the type that is wanted, and the value that arrives.
CASTS: dict[str, tuple[str, str, DataType, Any]] = {
    "same": ("Int64", "5", INT64, 5),
    "widened": ("UInt32", "4294967295", INT64, 4294967295),
    "narrowed": ("Int64", "-7", INT32, -7),
    "parsed": ("String", "'12'", INT64, 12),
    "parsed_low": ("LowCardinality(Nullable(String))", "'12'", INT64, 12),
    "null": ("Nullable(String)", "NULL", INT64, None),
    "flag": ("UInt8", "1", BOOLEAN, True),
    "float": ("Decimal(10, 2)", "1.25", FLOAT64, 1.25),
    "spelled": ("UInt64", "18446744073709551615", STRING, "18446744073709551615"),
    "bytes": ("String", "unhex('00ff')", BINARY, b"\x00\xff"),
    "day": ("DateTime", "'2024-02-03 04:05:06'", DATE, date(2024, 2, 3)),
    "moment": ("DateTime64(6, 'UTC')", "'2024-02-03 04:05:06.123000'", MS, datetime(2024, 2, 3, 4, 5, 6, 123000, UTC)),
    "moment_of_day": ("Date", "'2024-02-03'", MS, datetime(2024, 2, 3, tzinfo=UTC)),
    "decimal": ("Float64", "1.5", decimal(20, 3), Decimal("1.500")),
    "decimal_of_integer": ("Int32", "7", decimal(10, 0), Decimal(7)),
    "decimal_of_text": ("Nullable(String)", "'0.5'", decimal(38, 4), Decimal("0.5000")),
    "wide": ("Decimal(38, 2)", "1.25", decimal(60, 4), "1.2500"),
    "wide_of_integer": ("Nullable(UInt128)", f"'{2**128 - 1}'", decimal_arb(78, 0), str(2**128 - 1)),
    "wide_of_largest": ("UInt256", f"'{2**256 - 1}'", decimal_arb(78, 0), str(2**256 - 1)),
    "wide_signed": ("Int64", "-5", I256, "-5"),
    "wide_null": ("Nullable(UInt128)", "NULL", decimal_arb(78, 0), None),
    "wide_unsigned": ("UInt64", "5", U256, "5"),
    "list": ("Array(Nullable(Int32))", "[1, NULL]", list_of(INT64), [1, None]),
    "map": ("Map(String, UInt8)", "map('a', 1)", map_of(INT64), [("a", 1)]),
    "struct": (
        "Tuple(a Int8, b String)",
        "(1, 'x')",
        struct_of(Field("a", INT64), Field("b", STRING)),
        {"a": 1, "b": "x"},
    ),
    "address_as_text": ("IPv4", "'127.0.0.1'", STRING, "127.0.0.1"),
    "unreadable_as_text": ("JSON", """'{"a": 1}'""", STRING, '{"a":1}'),
}


@pytest.fixture(scope="module")
def row(clickhouse: ClickHouseServer) -> dict[str, Any]:
    database = clickhouse.database()
    columns = ", ".join(f"{name} {type_}" for name, (type_, *_) in CASTS.items())
    values = ", ".join(value for _, value, *_ in CASTS.values())
    clickhouse.execute(f"CREATE TABLE {database}.t (k Int64, {columns}) ENGINE = MergeTree ORDER BY k")
    clickhouse.execute(f"INSERT INTO {database}.t SELECT 1, {values}")
    made = source(clickhouse, f"table_name: {database}.t, columns: k")
    wanted = Schema((*(Field(name, type_) for name, (*_, type_, _) in CASTS.items()), OPERATION_FIELD))
    made.prepare(wanted, wanted.names)
    (found,) = everything(made)
    return dict(found)


@pytest.mark.parametrize("name", CASTS)
def test_a_value_arrives_with_the_type_that_is_wanted(row: dict[str, Any], name: str) -> None:
    assert row[name] == CASTS[name][-1]


@pytest.fixture
def table(clickhouse: ClickHouseServer) -> Iterator[str]:
    database = clickhouse.database()
    clickhouse.execute(f"CREATE TABLE {database}.t (k Int64, v Int64, s String) ENGINE = MergeTree ORDER BY k")
    clickhouse.execute(f"INSERT INTO {database}.t VALUES (1, 4294967296, 'one')")
    yield f"{database}.t"


@pytest.mark.parametrize("column", ["v", "s"])
def test_a_value_that_does_not_fit_is_an_error_and_never_another_value(
    clickhouse: ClickHouseServer, table: str, column: str
) -> None:
    made = source(clickhouse, f"table_name: {table}")
    made.prepare(Schema((Field(column, INT32), OPERATION_FIELD)), (column, "_gs_op"))
    with pytest.raises(PermanentError):
        everything(made)


def test_a_type_that_has_no_cast_is_named() -> None:
    with pytest.raises(UserError, match="'c' has the ClickHouse type Int64, which cannot be read as interval"):
        cast_expression(Field("c", DataType("interval")), "Int64")
    with pytest.raises(UserError, match="'c' has the ClickHouse type JSON, which cannot be read"):
        cast_expression(Field("c", INT64), "JSON")
