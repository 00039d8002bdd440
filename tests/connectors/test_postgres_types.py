"""Every type of a pipeline reaches Postgres and comes back as it was, staged as arrays or copied."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.formats.arrow import arrow_schema
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DATE64,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    I256,
    INT8,
    INT16,
    INT32,
    INT64,
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
from support.postgres_samples import LOOSE, TASK, sink
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

COPIED = 600
"""So many rows are copied; few are sent as arrays."""
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
NESTED = struct_of(Field("a", INT64), Field("b", list_of(STRING)), Field("wide", decimal_arb(100, 18)))


def number(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{scale}"))


def plain(value: Decimal) -> str:
    return f"{value:f}" if value else "0"


def same(value: Any) -> Any:
    return value


Case = tuple[DataType, st.SearchStrategy[Any], Callable[[Any], Any]]
"""A type, values as Arrow carries them, and what comes back for one."""
CASES: dict[str, Case] = {
    "boolean": (BOOLEAN, st.booleans(), same),
    "int8": (INT8, st.integers(-(2**7), 2**7 - 1), same),
    "int16": (INT16, st.integers(-(2**15), 2**15 - 1), same),
    "int32": (INT32, st.integers(-(2**31), 2**31 - 1), same),
    "int64": (INT64, st.integers(-(2**63), 2**63 - 1), same),
    "uint8": (UINT8, st.integers(0, 2**8 - 1), same),
    "uint16": (UINT16, st.integers(0, 2**16 - 1), same),
    "uint32": (UINT32, st.integers(0, 2**32 - 1), same),
    "uint64": (UINT64, st.integers(0, 2**64 - 1).map(Decimal), same),
    "float16": (FLOAT16, st.floats(width=16), same),
    "float32": (FLOAT32, st.floats(width=32), same),
    "float64": (FLOAT64, st.floats(), same),
    "text": (STRING, TEXT, same),
    "binary": (BINARY, st.binary(max_size=20), same),
    "binary(4)": (DataType("binary", length=4), st.binary(min_size=4, max_size=4), same),
    "date": (DATE, st.dates(), same),
    "date64": (DATE64, st.dates(), same),
    "time32": (TIME32, st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)), same),
    "time": (TIME64, st.times(), same),
    "timestamp": (TIMESTAMP, st.datetimes(), same),
    "timestamp(s)": (DataType("timestamp", unit="s"), st.datetimes().map(lambda t: t.replace(microsecond=0)), same),
    "timestamp(ms)": (
        DataType("timestamp", unit="ms"),
        st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
        same,
    ),
    "timestamp(ns)": (DataType("timestamp", unit="ns"), st.datetimes(), same),
    "instant": (
        TIMESTAMP_UTC,
        st.datetimes(timezones=st.just(UTC)),
        lambda value: value.replace(tzinfo=None),
    ),
    "decimal(38,10)": (decimal(38, 10), number(38, 10), same),
    "decimal(10,10)": (decimal(10, 10), number(10, 10), same),
    "decimal(39,0)": (decimal(39, 0), number(39, 0).map(plain), Decimal),
    "decimal(76,38)": (decimal(76, 38), number(76, 38).map(plain), Decimal),
    "decimal(60,30)": (decimal(60, 30), number(60, 30).map(plain), Decimal),
    "decimal_arb(100,18)": (decimal_arb(100, 18), number(100, 18).map(plain), Decimal),
    "decimal_arb(1000,1000)": (decimal_arb(1000, 1000), number(1000, 1000).map(plain), Decimal),
    "decimal_arb(4000,2)": (decimal_arb(4000, 2), number(4000, 2).map(plain), Decimal),
    "i256": (I256, st.integers(-(2**255), 2**255 - 1).map(str), Decimal),
    "u256": (U256, st.integers(0, 2**256 - 1).map(str), Decimal),
    "list": (list_of(INT64), st.lists(st.none() | st.integers(-(2**53), 2**53), max_size=4), same),
    "map": (map_of(STRING), st.dictionaries(TEXT, TEXT, max_size=3).map(lambda d: list(d.items())), dict),
    "struct": (
        NESTED,
        st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.lists(TEXT, max_size=2), "wide": st.just("1.5")}),
        same,
    ),
}


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def columns(type_: DataType) -> Schema:
    return Schema((Field("id", INT64, nullable=False), Field("v", type_), OPERATION_FIELD))


def written(database: Database, type_: DataType, values: list[Any]) -> list[Any]:
    import pyarrow as pa

    schema = arrow_schema(columns(type_))
    arrays = [
        pa.array(range(len(values)), pa.int64()),
        pa.array(values, schema.field("v").type),
        pa.array(["i"] * len(values)),
    ]
    read = "v::float8" if type_ in (FLOAT16, FLOAT32) else "v"  # a short float is shown with fewer digits than it has
    database.execute("DROP TABLE IF EXISTS shop.items")
    with sink(database, columns=columns(type_)) as made:
        report = made.writer().write(LOOSE, TASK, [pa.RecordBatch.from_arrays(arrays, schema=schema)])
        assert report.bad_rows == ()
        made.commit(LOOSE, [report])
    return [value for _, value in database.rows(f"SELECT id, {read} FROM shop.items ORDER BY id")]


def equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return bool(found == expected)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_come_back_as_they_were(database: Database, name: str, data: st.DataObject) -> None:
    type_, strategy, back = CASES[name]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=10))
    for copies in (1, COPIED // len(values) + 1):
        found = written(database, type_, values * copies)
        expected = [None if value is None else back(value) for value in values] * copies
        assert all(map(equal, found, expected)), f"{found[: len(values)]} instead of {expected[: len(values)]}"


def test_times_beyond_the_years_of_python_are_written(database: Database) -> None:
    far = 253_402_300_800_000_000  # the year 10000, in microseconds
    import pyarrow as pa

    schema = arrow_schema(columns(TIMESTAMP))
    arrays = [pa.array([1], pa.int64()), pa.array([far], pa.int64()).cast(pa.timestamp("us")), pa.array(["i"])]
    database.execute("DROP TABLE IF EXISTS shop.items")
    with sink(database, columns=columns(TIMESTAMP)) as made:
        made.commit(LOOSE, [made.writer().write(LOOSE, TASK, [pa.RecordBatch.from_arrays(arrays, schema=schema)])])
    assert database.rows("SELECT extract(year FROM v)::int FROM shop.items") == [(10000,)]


def test_json_keeps_inner_nulls_and_all_digits(database: Database) -> None:
    value = {"a": None, "b": ["x", None], "wide": "12345678901234567890.123456789012345678"}
    assert written(database, NESTED, [value, None]) == [value, None]
    text = database.rows("SELECT v::text FROM shop.items WHERE id = 0")[0][0]
    assert json.loads(text) == value


def test_a_number_has_as_many_digits_as_postgres_can_hold(database: Database) -> None:
    type_, value = decimal_arb(65_535, 16_383), f"-{'9' * 49_152}.{'7' * 16_383}"
    assert written(database, type_, [value, "1.5"]) == [Decimal(value), Decimal("1.5")]
