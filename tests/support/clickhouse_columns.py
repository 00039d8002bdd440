"""Columns of every type that a ClickHouse source reads: what they are in a pipeline, and a value of each."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

UUID = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
_NOON = dt.datetime.fromisoformat("2020-01-02T03:04:05")
_BIGGEST = 2**256 - 1


class Column(NamedTuple):
    type: str
    logical: str
    """The type in a pipeline, and ` or null`."""
    sql: str
    """Of a value."""
    value: Any
    """What arrives."""


COLUMNS = {
    "bool": Column("Bool", "boolean", "true", True),
    **{f"i{bits}": Column(f"Int{bits}", f"int{bits}", f"-{bits}", -bits) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": Column(f"UInt{bits}", f"uint{bits}", f"{2**bits - 1}", 2**bits - 1) for bits in (8, 16, 32)},
    "u64": Column("UInt64", "uint64", "18446744073709551615", Decimal(18446744073709551615)),
    "i128": Column("Int128", "decimal(39,0)", f"'{-(2**127)}'", str(-(2**127))),
    "u128": Column("UInt128", "decimal(39,0)", f"'{2**128 - 1}'", str(2**128 - 1)),
    "i256": Column("Int256", "i256", f"'{-(2**255)}'", str(-(2**255))),
    "u256": Column("Nullable(UInt256)", "u256 or null", f"'{_BIGGEST}'", str(_BIGGEST)),
    "none": Column("Nullable(UInt256)", "u256 or null", "NULL", None),
    "f32": Column("Float32", "float32", "1.5", 1.5),
    "f64": Column("Float64", "float64", "-0.1", -0.1),
    "text": Column("String", "string", "'é\\0\\n'", "é\0\n"),
    "null_text": Column("Nullable(String)", "string or null", "NULL", None),
    "fixed": Column("FixedString(3)", "binary(3)", "'ab'", b"ab\0"),
    "low": Column("LowCardinality(Nullable(String))", "string or null", "'low'", "low"),
    "uuid": Column("UUID", "string", f"'{UUID}'", UUID),
    "four": Column("IPv4", "string", "'1.2.3.4'", "1.2.3.4"),
    "six": Column("IPv6", "string", "'::1'", "::1"),
    "enum": Column("Enum8('it''s, (odd)' = 1, 'b' = 2)", "string", "1", "it's, (odd)"),
    "wide_enum": Column("Enum16('a' = 1000)", "string", "1000", "a"),
    "day": Column("Date", "date32", "'2020-01-02'", dt.date(2020, 1, 2)),
    "far_day": Column("Date32", "date32", "'1950-01-02'", dt.date(1950, 1, 2)),
    "second": Column("DateTime", "timestamp(s)", "'2020-01-02 03:04:05'", _NOON),
    "berlin": Column(
        "DateTime('Europe/Berlin')",
        "timestamp(s, Europe/Berlin)",
        "'2020-01-02 03:04:05'",
        _NOON.replace(tzinfo=ZoneInfo("Europe/Berlin")),
    ),
    "milli": Column("DateTime64(3)", "timestamp(ms)", "'2020-01-02 03:04:05.123'", _NOON.replace(microsecond=123_000)),
    "micro": Column(
        "DateTime64(6, 'UTC')",
        "timestamp(UTC)",
        "'2020-01-02 03:04:05.123456'",
        _NOON.replace(microsecond=123_456, tzinfo=dt.UTC),
    ),
    "nano": Column(
        "DateTime64(9)", "timestamp(ns)", "'2020-01-02 03:04:05.123456789'", _NOON.replace(microsecond=123_456)
    ),
    "money": Column("Decimal(20, 5)", "decimal(20,5)", "'-1.5'", Decimal("-1.50000")),
    "d32": Column("Decimal32(2)", "decimal(9,2)", "'1.25'", Decimal("1.25")),
    "d64": Column("Decimal64(2)", "decimal(18,2)", "'1.25'", Decimal("1.25")),
    "d128": Column("Decimal128(2)", "decimal(38,2)", "'1.25'", Decimal("1.25")),
    "d256": Column("Decimal256(2)", "decimal(76,2)", "'1.25'", "1.25"),
    "wide": Column("Decimal(50, 3)", "decimal(50,3)", "'-1.5'", "-1.500"),
    "zero": Column("Decimal(50, 3)", "decimal(50,3)", "'0'", "0"),
    "lists": Column("Array(Array(Nullable(Int8)))", "list<list<int8>>", "[[1, NULL], []]", [[1, None], []]),
    "pair": Column(
        "Tuple(a Int8, `b, (c` Nullable(String))",
        "struct<a: int8, b, (c: string>",
        "(1, NULL)",
        {"a": 1, "b, (c": None},
    ),
    "unnamed": Column("Tuple(Int8, UInt256)", "struct<1: int8, 2: u256>", "(2, 3)", {"1": 2, "2": "3"}),
    "map": Column("Map(String, UInt64)", "map<string, uint64>", "map('a', 1)", [("a", Decimal(1))]),
    "wide_map": Column(
        "Map(LowCardinality(String), Array(UInt256))",
        "map<string, list<u256>>",
        "map('a', [1, 2])",
        [("a", ["1", "2"])],
    ),
    "wide_list": Column("Array(UInt256)", "list<u256>", "[1, 2]", ["1", "2"]),
    "deep": Column(
        "Array(Tuple(x UUID, y Date))",
        "list<struct<x: string, y: date32>>",
        f"[('{UUID}', '2020-01-02')]",
        [{"x": UUID, "y": dt.date(2020, 1, 2)}],
    ),
    "sum": Column("SimpleAggregateFunction(sum, UInt64)", "uint64", "5", Decimal(5)),
}
