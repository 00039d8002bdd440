"""Every type of a pipeline reaches ClickHouse and comes back as it was, and what does not fit is told."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

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
from support.clickhouse_server import ClickHouseDatabase, ClickHouseServer
from support.clickhouse_sink_samples import new_table, sink, write

pytestmark = pytest.mark.servers
SECOND, MILLI, NANO = (DataType("timestamp", unit=unit) for unit in ("s", "ms", "ns"))
RECORD = struct_of(
    Field("a", INT64, nullable=False),
    Field("b c", STRING),
    Field("wide", U256),
    Field("more", list_of(struct_of(Field("d", DATE), Field("n", decimal(50, 2), nullable=False))), nullable=False),
)
WIDE = "9" * 70 + "." + "1" * 6


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


# By name: a type, and values as Arrow has them, each with the text that ClickHouse gives for it.
CASES: dict[str, tuple[DataType, list[tuple[Any, str]]]] = {
    "boolean": (BOOLEAN, [(True, "1"), (False, "0")]),
    "int8": (INT8, [(-128, "-128"), (127, "127")]),
    "int16": (INT16, [(-(2**15), "-32768"), (2**15 - 1, "32767")]),
    "int32": (INT32, [(-(2**31), "-2147483648"), (2**31 - 1, "2147483647")]),
    "int64": (INT64, [(-(2**63), "-9223372036854775808"), (2**63 - 1, "9223372036854775807")]),
    "uint8": (UINT8, [(0, "0"), (255, "255")]),
    "uint16": (UINT16, [(0, "0"), (65535, "65535")]),
    "uint32": (UINT32, [(0, "0"), (2**32 - 1, "4294967295")]),
    "uint64": (UINT64, [(Decimal(0), "0"), (Decimal(2**64 - 1), "18446744073709551615")]),
    "float16": (FLOAT16, [(1.5, "1.5"), (float("inf"), "inf")]),
    "float32": (FLOAT32, [(0.1, "0.1"), (float("nan"), "nan")]),
    "float64": (FLOAT64, [(0.1, "0.1"), (float("-inf"), "-inf")]),
    "string": (STRING, [("é\0'\\\n😀", "é\0'\\\n😀"), ("", "")]),
    "binary": (BINARY, [(b"\x00ab", "\0ab"), (b"", "")]),
    "fixed": (DataType("binary", length=4), [(b"\x00abc", "\0abc"), (b"wxyz", "wxyz")]),
    "date32": (DATE, [(date(1970, 1, 1), "1970-01-01"), (date(2149, 6, 6), "2149-06-06")]),
    "date64": (DATE64, [(date(1970, 1, 1), "1970-01-01 00:00:00"), (date(2106, 2, 7), "2106-02-07 00:00:00")]),
    "time32": (TIME32, [(time(0), "1970-01-01 00:00:00"), (time(23, 59, 59), "1970-01-01 23:59:59")]),
    "time64": (
        TIME64,
        [(time(0), "1970-01-01 00:00:00.000000000"), (time(1, 2, 3, 4), "1970-01-01 01:02:03.000004000")],
    ),
    "second": (SECOND, [(at("1970-01-01"), "1970-01-01 00:00:00"), (at("2106-02-07T06:28:15"), "2106-02-07 06:28:15")]),
    "milli": (
        MILLI,
        [(at("1900-01-01"), "1900-01-01 00:00:00.000"), (at("2299-12-31T23:59:59.999"), "2299-12-31 23:59:59.999")],
    ),
    "micro": (
        TIMESTAMP,
        [
            (at("1969-12-31T23:59:59.999999"), "1969-12-31 23:59:59.999999"),
            (at("2299-12-31"), "2299-12-31 00:00:00.000000"),
        ],
    ),
    "nano": (
        NANO,
        [
            (at("2262-04-11T23:47:16.854775"), "2262-04-11 23:47:16.854775000"),
            (at("1900-01-01"), "1900-01-01 00:00:00.000000000"),
        ],
    ),
    "instant": (
        TIMESTAMP_UTC,
        [
            (datetime(2024, 1, 2, 3, tzinfo=UTC), "2024-01-02 03:00:00.000000"),
            (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01 00:00:00.000000"),
        ],
    ),
    "duration": (DURATION, [(timedelta(seconds=-1), "-1000000"), (timedelta(days=1), "86400000000")]),
    "interval": (INTERVAL, [("1 month", "1 month"), ("", "")]),
    "decimal": (
        decimal(38, 10),
        [(Decimal("9" * 28 + ".1234567891"), "9" * 28 + ".1234567891"), (Decimal("-0.5"), "-0.5")],
    ),
    "small": (decimal(5, 5), [(Decimal("0.99999"), "0.99999"), (Decimal("-0.99999"), "-0.99999")]),
    "decimal256": (decimal(76, 6), [(WIDE, WIDE), (f"-{WIDE}", f"-{WIDE}")]),
    "arb": (decimal_arb(60, 2), [("-1.25", "-1.25"), ("0", "0")]),
    "u256": (U256, [(str(2**256 - 1), str(2**256 - 1)), ("0", "0")]),
    "i256": (I256, [(str(-(2**255)), str(-(2**255))), (str(2**255 - 1), str(2**255 - 1))]),
    "list": (list_of(INT64), [([1, -2], "[1,-2]"), ([], "[]")]),
    "wide_list": (list_of(list_of(U256)), [([[str(2**255)], []], f"[[{2**255}],[]]"), ([], "[]")]),
    "map": (map_of(decimal(60, 2)), [([("k'", "1.50"), ("", "-2.00")], "{'k\\'':1.5,'':-2}"), ([], "{}")]),
    "map_of_int": (
        map_of(list_of(STRING), INT32),
        [([(1, ["a"])], "{1:['a']}"), ([(2, []), (3, ["b", ""])], "{2:[],3:['b','']}")],
    ),
    "record": (
        RECORD,
        [
            ({"a": 1, "b c": None, "wide": "7", "more": []}, "(1,NULL,7,[])"),
            (
                {"a": 2, "b c": "x", "wide": None, "more": [{"d": date(2024, 1, 1), "n": "1.25"}]},
                "(2,'x',NULL,[('2024-01-01',1.25)])",
            ),
        ],
    ),
}
NEVER_NULL = ("list", "wide_list", "map", "map_of_int", "record")


@pytest.fixture(scope="module")
def database(clickhouse: ClickHouseServer) -> ClickHouseDatabase:
    return clickhouse.own_database()


def columns(**types: DataType) -> Schema:
    return Schema((Field("id", INT64, nullable=False), *(Field(n, t) for n, t in types.items()), OPERATION_FIELD))


def texts(database: ClickHouseDatabase, table: str, names: str) -> list[list[str | None]]:
    import json

    answer = database.execute(f"SELECT {names} FROM {table} ORDER BY id FORMAT JSONCompactStrings")
    return [[None if text == "ᴺᵁᴸᴸ" else text for text in row] for row in json.loads(answer)["data"]]


def test_every_type_comes_back(database: ClickHouseDatabase) -> None:
    schema, table = columns(**{name: type_ for name, (type_, _) in CASES.items()}), new_table()
    rows = [(n, *(values[n][0] for _, values in CASES.values()), "i") for n in (0, 1)]
    rows.append((2, *(values[0][0] if name in NEVER_NULL else None for name, (_, values) in CASES.items()), "i"))
    with sink(database, table, ", on_error: skip", columns=schema) as out:
        report = write(out, rows, columns=schema)
        assert [row.message for row in report.bad_rows] == []
    found = texts(database, table, ", ".join(CASES))
    for number, row in enumerate(found):
        for text, (name, (_, values)) in zip(row, CASES.items(), strict=True):
            expected = values[number][1] if number < 2 else values[0][1] if name in NEVER_NULL else None
            assert text == expected, name


# A type, the type of an existing column, values with the text that ClickHouse gives, values that do not fit, and why.
EXISTING: list[tuple[DataType, str, list[tuple[Any, str]], list[Any], str]] = [
    (INT64, "Int8", [(127, "127")], [128, -129], "not in range"),
    (INT64, "Nullable(UInt64)", [(5, "5"), (None, None)], [-1], "not in range"),  # type: ignore[list-item]
    (UINT64, "Int32", [(Decimal(5), "5")], [Decimal(2**31)], "Integer value"),
    (INT64, "Int256", [(-5, "-5"), (2**63 - 1, str(2**63 - 1))], [None], "null does not fit Int256"),
    (INT64, "UInt256", [(5, "5")], [-5], "negative number does not fit UInt256"),
    (decimal(20, 0), "Int128", [(Decimal(-5), "-5")], [None], "null"),
    (U256, "UInt128", [(str(2**128 - 1), str(2**128 - 1))], [str(2**128), "-1"], "does not fit UInt128"),
    (U256, "UInt256", [("0", "0")], ["-1", str(2**256)], "does not fit"),
    (U256, "String", [(str(2**256 - 1), str(2**256 - 1))], [None], "null"),
    (decimal_arb(100, 2), "String", [("1" * 80 + ".25", "1" * 80 + ".25")], [None], "null"),
    (U256, "Decimal(40, 2)", [("5", "5")], [str(10**39)], "does not fit"),
    (INT32, "Decimal(5, 2)", [(-999, "-999")], [1000], "does not fit"),
    (decimal(20, 4), "Decimal(10, 2)", [(Decimal("1.25"), "1.25")], [Decimal("1.255"), Decimal(10**9)], ""),
    (FLOAT32, "Float64", [(0.5, "0.5")], [None], "null"),
    (BOOLEAN, "Bool", [(True, "true")], [None], "null"),
    (INT64, "String", [(-5, "-5")], [None], "null"),
    (TIMESTAMP, "String", [(at("2024-01-02T03:04:05.000006"), "2024-01-02T03:04:05.000006")], [None], "null"),
    (STRING, "FixedString(3)", [("abc", "abc"), ("é1", "é1")], ["ab", "abcd"], "3 bytes"),
    (STRING, "LowCardinality(Nullable(String))", [("a", "a"), (None, None)], [], ""),  # type: ignore[list-item]
    (STRING, "Enum8('a' = 1, 'b' = 2)", [("b", "b")], ["c"], "Unknown element"),
    (STRING, "UUID", [("61f0c404-5cb3-11e7-907b-a6006ad3dba0",) * 2], ["x"], "uuid"),
    (STRING, "IPv6", [("::1", "::1")], ["x"], ""),
    (DATE, "Date", [(date(2024, 2, 29), "2024-02-29")], [date(1969, 12, 31), date(2149, 6, 7)], "range of Date"),
    (DATE, "Date32", [(date(1900, 1, 1), "1900-01-01")], [date(1899, 12, 31), date(2300, 1, 1)], "range of Date32"),
    (
        TIMESTAMP,
        "DateTime",
        [(at("2024-01-02"), "2024-01-02 00:00:00")],
        [at("2024-01-02T00:00:00.5"), at("1969-01-01")],
        "",
    ),
    (
        TIMESTAMP,
        "DateTime64(4)",
        [(at("2024-01-02T00:00:00.1234"), "2024-01-02 00:00:00.1234")],
        [at("2024-01-02T00:00:00.12345")],
        "more digits",
    ),
    (
        TIMESTAMP,
        "DateTime64(6, 'Asia/Tokyo')",
        [(at("2024-01-02"), "2024-01-02 09:00:00.000000")],
        [at("1899-01-01"), at("2300-01-01")],
        "range",
    ),
    (TIME32, "DateTime", [(time(1), "1970-01-01 01:00:00")], [time(1, 0, 0, 1000)], "lose data"),
    (list_of(INT64), "Array(Nullable(Int8))", [([1, None], "[1,NULL]")], [[1, 300], None], ""),
    (
        struct_of(Field("x", INT64), Field("y", STRING)),
        "Tuple(y String, x Nullable(Int8))",
        [({"x": None, "y": "a"}, "('a',NULL)")],
        [{"x": 1, "y": None}],
        "null",
    ),
    (
        struct_of(Field("x", INT64), Field("y", STRING)),
        "Tuple(Int8, String)",
        [({"x": 1, "y": "a"}, "(1,'a')")],
        [{"x": 128, "y": ""}],
        "range",
    ),
]


@pytest.mark.parametrize(
    ("type_", "target", "fits", "unfit", "why"), EXISTING, ids=[f"{t}-{c}" for t, c, *_ in EXISTING]
)
def test_values_fit_the_column_of_an_existing_table_or_are_rejected(
    database: ClickHouseDatabase, type_: DataType, target: str, fits: list[tuple[Any, str]], unfit: list[Any], why: str
) -> None:
    table, schema = new_table(), columns(v=type_)
    database.execute(f"CREATE TABLE {table} (id Int64, v {target}) ENGINE = MergeTree ORDER BY id")
    # Good and bad values in turn: a bad one must not spoil its neighbours.
    values = [
        value for pair in zip(fits * 9, (unfit or [fits[0][0]]) * 9, strict=False) for value in (pair[0][0], pair[1])
    ]
    with sink(database, table, ", on_error: skip", columns=schema) as out:
        report = write(out, [(n, value, "i") for n, value in enumerate(values)], columns=schema)
    assert [row.index for row in report.bad_rows] == ([n for n in range(len(values)) if n % 2] if unfit else [])
    assert all(why in row.message for row in report.bad_rows)
    expected = {n: fits[(n // 2) % len(fits)][1] for n in range(0, len(values), 2)}
    found = {int(id_ or 0): text for id_, text in texts(database, table, "id, v")}
    assert {n: text for n, text in found.items() if n % 2 == 0} == expected


@pytest.mark.parametrize(
    ("type_", "target"),
    [
        (STRING, "Int64"),
        (FLOAT64, "Float32"),
        (INT64, "Float64"),
        (STRING, "DateTime"),
        (FLOAT64, "Decimal(10, 2)"),
        (INT64, "UUID"),
        (list_of(STRING), "Array(Int8)"),
        (list_of(INT64), "String"),
        (struct_of(Field("x", INT64)), "Tuple(z Int64)"),
        (INT64, "AggregateFunction(sum, Int64)"),
        (DataType("binary", length=3), "FixedString(4)"),
    ],
    ids=str,
)
def test_types_that_never_fit_end_the_start(database: ClickHouseDatabase, type_: DataType, target: str) -> None:
    from streamling.errors import UserError

    table, schema = new_table(), columns(v=type_)
    database.execute(f"CREATE TABLE {table} (id Int64, v {target}) ENGINE = AggregatingMergeTree ORDER BY id")
    with pytest.raises(UserError, match="column 'v' does not fit"), sink(database, table, columns=schema):
        pass
