"""Columns of ClickHouse tables, cast by the server to the types that another system has chosen."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from streamling.connector import BadRow
from streamling.errors import PermanentError, UserError
from streamling.formats.clickhouse_casts import cast_to
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


# The type of the column, a value that fits, one that does not, and the type that is wanted.
MISFITS: dict[str, tuple[str, str, str, DataType]] = {
    "too large": ("Int64", "7", "4294967296", INT32),
    "no integer": ("String", "'7'", "'seven'", INT32),
    "a fraction": ("Float64", "7", "7.5", INT64),
    "no number": ("LowCardinality(Nullable(String))", "'7'", "'seven'", FLOAT64),
    "no boolean": ("String", "'true'", "'maybe'", BOOLEAN),
    "no day": ("String", "'2024-02-03'", "'soon'", DATE),
    "no moment": ("Nullable(String)", "'2024-02-03 04:05:06'", "'soon'", MS),
    "no decimal": ("String", "'7.25'", "'7,25 EUR'", decimal(20, 2)),
    "decimal too large": ("Decimal(76, 0)", "7", f"'{10**60}'", decimal(38, 2)),
    "no wide decimal": ("Nullable(String)", "'7.25'", "'seven'", decimal(60, 2)),
    "not UTF-8": ("String", "'7'", "unhex('ff')", INT32),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_value_that_does_not_fit_makes_its_row_bad_and_is_never_another_value(
    clickhouse: ClickHouseServer, name: str
) -> None:
    type_, good, bad, target = MISFITS[name]
    table = f"{clickhouse.database()}.t"
    clickhouse.execute(f"CREATE TABLE {table} (k Int64, v {type_}) ENGINE = MergeTree ORDER BY k")
    clickhouse.execute(f"INSERT INTO {table} SELECT 1, {good} UNION ALL SELECT 2, {bad} UNION ALL SELECT 3, {good}")
    made = source(clickhouse, f"table_name: {table}")
    made.prepare(Schema((Field("k", INT64), Field("v", target), OPERATION_FIELD)), ("k", "v", "_gs_op"))
    first, rejected, last = everything(made)
    assert (first["k"], last["k"]) == (1, 3)
    assert first["v"] == last["v"] is not None
    assert isinstance(rejected, BadRow)
    assert rejected.source == {"table": table, "key": [2]}
    assert "of the column 'v' cannot be read as" in rejected.message


def test_many_bad_values_of_several_columns_are_told_apart(clickhouse: ClickHouseServer) -> None:
    table = f"{clickhouse.database()}.t"
    clickhouse.execute(f"CREATE TABLE {table} (k Int64, a String, b Nullable(Int64)) ENGINE = MergeTree ORDER BY k")
    clickhouse.execute(
        f"INSERT INTO {table} SELECT number, if(number % 3 = 0, 'x', '1'), if(number % 3 = 1, {1 << 40}, NULL) "
        "FROM numbers(3000)"
    )
    made = source(clickhouse, f"table_name: {table}")
    made.prepare(Schema((Field("k", INT64), Field("a", INT32), Field("b", INT32), OPERATION_FIELD)), ("k", "a", "b"))
    items = everything(made)
    assert [item["k"] for item in items if not isinstance(item, BadRow)] == list(range(2, 3000, 3))
    bad = {item.source["key"][0]: item.message for item in items if isinstance(item, BadRow)}
    assert sorted(bad) == [key for key in range(3000) if key % 3 != 2]
    assert all(("'x' of the column 'a'" if key % 3 == 0 else "'b'") in message for key, message in bad.items())


NESTED: dict[str, tuple[str, str, DataType]] = {
    "list": ("Array(Int64)", "[4294967296]", list_of(INT32)),
    "map": ("Map(String, Int64)", "map('a', 4294967296)", map_of(INT32)),
    "struct": ("Tuple(a Int64)", "tuple(4294967296)", struct_of(Field("a", INT32))),
    "list of lists": ("Array(Array(Int64))", "[[4294967296]]", list_of(list_of(INT32))),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_nested_value_that_does_not_fit_is_an_error_and_never_another_value(
    clickhouse: ClickHouseServer, name: str
) -> None:
    type_, value, target = NESTED[name]
    table = f"{clickhouse.database()}.t"
    clickhouse.execute(f"CREATE TABLE {table} (k Int64, v {type_}) ENGINE = MergeTree ORDER BY k")
    clickhouse.execute(f"INSERT INTO {table} SELECT 1, {value}")
    made = source(clickhouse, f"table_name: {table}")
    made.prepare(Schema((Field("v", target), OPERATION_FIELD)), ("v", "_gs_op"))
    with pytest.raises(PermanentError):
        everything(made)


@pytest.mark.parametrize(
    ("type_", "target"),
    [
        ("Array(Nullable(String))", list_of(INT64)),
        ("Map(String, String)", map_of(decimal(10, 2))),
        ("Tuple(a Array(String))", struct_of(Field("a", list_of(DATE)))),
    ],
)
def test_text_inside_of_lists_is_not_parsed_because_the_server_would_lose_what_it_cannot_parse(
    type_: str, target: DataType
) -> None:
    with pytest.raises(UserError, match="text inside of it is not parsed"):
        cast_to(Field("c", target), type_)


def test_a_type_that_has_no_cast_is_named() -> None:
    with pytest.raises(UserError, match="'c' has the ClickHouse type Int64, which cannot be read as interval"):
        cast_to(Field("c", DataType("interval")), "Int64")
    with pytest.raises(UserError, match="'c' has the ClickHouse type JSON, which cannot be read"):
        cast_to(Field("c", INT64), "JSON")
