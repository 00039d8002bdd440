"""The input of both engines: a table of ordinary values and one of extreme values, with a column of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streamling.formats.arrow import arrow_schema, cast_batch
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DATE64,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIME64,
    TIMESTAMP,
    TIMESTAMP_UTC,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
    map_of,
    struct_of,
)

_PAIR = struct_of(Field("a", INT32), Field("b", STRING))
_ENTRY = struct_of(Field("k", STRING), Field("v", INT64))
_TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "i": (INT32, pa.int32()),
    "l": (INT64, pa.int64()),
    "f": (FLOAT64, pa.float64()),
    "f4": (FLOAT32, pa.float32()),
    "p": (decimal(10, 2), pa.decimal128(10, 2)),
    "t": (STRING, pa.string()),
    "b": (BOOLEAN, pa.bool_()),
    "d": (DATE, pa.date32()),
    "d64": (DATE64, pa.date64()),
    "ts": (TIMESTAMP, pa.timestamp("us")),
    "tz": (TIMESTAMP_UTC, pa.timestamp("us", "UTC")),
    "tms": (DataType("timestamp", unit="ms"), pa.timestamp("ms")),
    "tm": (TIME64, pa.time64("us")),
    "u8": (UINT8, pa.uint8()),
    "u16": (UINT16, pa.uint16()),
    "u32": (UINT32, pa.uint32()),
    "u64": (UINT64, pa.uint64()),
    "bin": (BINARY, pa.binary()),
    "fb": (DataType("binary", length=2), pa.binary(2)),
    "tags": (list_of(STRING), pa.list_(pa.string())),
    "ns": (list_of(INT64), pa.list_(pa.int64())),
    "nn": (list_of(list_of(INT64)), pa.list_(pa.list_(pa.int64()))),
    "s": (_PAIR, pa.struct([("a", pa.int32()), ("b", pa.string())])),
    "ss": (list_of(_ENTRY), pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())]))),
    "m": (map_of(INT64), pa.map_(pa.string(), pa.int64())),
    "mi": (map_of(STRING, INT64), pa.map_(pa.int64(), pa.string())),
    "w": (decimal(60, 5), pa.decimal256(60, 5)),
    "wi": (decimal(60, 0), pa.decimal256(60, 0)),
}
COLUMNS = Schema(tuple(Field(name, logical) for name, (logical, _) in _TYPES.items()))

_TIMES = [
    dt.datetime.fromisoformat(text)
    for text in ("2024-05-15T12:34:56.789123", "1969-12-31T23:59:59", "2024-12-30T00:00:00.500", "2000-02-29T01:01:01")
]
_DAYS = [dt.date(2024, 1, 31), dt.date(1969, 12, 31), dt.date(2024, 12, 30), dt.date(2000, 2, 29)]
_ORDINARY: dict[str, list[Any]] = {
    "i": [7, -7, 1, 2],
    "l": [3, -2, 1, 4],
    "f": [2.5, -0.5, float("nan"), float("inf")],
    "f4": [1.5, -0.25, 0.0, 1e10],
    "p": [Decimal("10.25"), Decimal("-1.55"), Decimal("0.00"), Decimal("99.99")],
    "t": ["Hello wORLD", "zażółć-gęślą_3x", "a\\b%\n", ""],
    "b": [True, False, None, True],
    "d": _DAYS,
    "d64": _DAYS,
    "ts": _TIMES,
    "tz": [time.replace(tzinfo=dt.UTC) for time in _TIMES],
    "tms": [time.replace(microsecond=time.microsecond // 1000 * 1000) for time in _TIMES],
    "tm": [time.time() for time in (*_TIMES[:1], *_TIMES[2:], _TIMES[3])],
    "u8": [7, 0, 255, 2],
    "u16": [7, 0, 65535, 2],
    "u32": [7, 0, 4294967295, 2],
    "u64": [7, 0, 100, 2],
    "bin": [b"\x00\xff", b"", b"abc", b"\x80"],
    "fb": [b"ab", b"\x00\x00", b"\xff\xff", b"zz"],
    "tags": [["a", "b", None], ["zażółć"], [], ["x,y", "😀"]],
    "ns": [[1, 2, 3], [], [None, 5], [-1]],
    "nn": [[[1, 2], [3]], [], [[], [4]], [[5]]],
    "s": [{"a": 1, "b": "x"}, {"a": None, "b": ""}, {"a": 3, "b": None}, {"a": 4, "b": "😀"}],
    "ss": [[{"k": "a", "v": 1}, {"k": "b", "v": None}], [], [None], [{"k": None, "v": 5}]],
    "m": [[("a", 1), ("b", None)], [], [("", 3)], [("😀", 4)]],
    "mi": [[(1, "one"), (2, None)], [], [(-1, "")], [(99, "x")]],
    "w": [Decimal("1.5"), Decimal("-1.50000"), Decimal("0"), Decimal("7")],
    "wi": [Decimal(10**50), Decimal(-(10**50)), Decimal(-1), Decimal(7)],
}
_MOMENTS = [
    dt.datetime.fromisoformat(text)
    for text in (
        "0001-01-01", "9999-12-31T23:59:59.999999", "1970-01-01", "2024-02-29T12:00:00", "1900-02-28T23:59:59",
    )
]  # fmt: skip
_EXTREME: dict[str, list[Any]] = {
    "i": [0, -1, -(2**31), 2**31 - 1, 1],
    "l": [0, -1, -(2**63), 2**63 - 1, 10**18],
    "f": [0.0, float("nan"), float("inf"), float("-inf"), 1e-300],
    "f4": [0.0, float("nan"), float("inf"), float("-inf"), 1.5],
    "p": [Decimal("0.00"), Decimal("-99999999.99"), Decimal("99999999.99"), Decimal("0.01"), Decimal("-0.01")],
    "t": ["", " ", "😀", "é\u0301😀 x", "a'b\"c\td"],
    "b": [True, False, True, None, False],
    "d": [moment.date() for moment in _MOMENTS],
    "ts": _MOMENTS,
    "tz": [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS],
    "tm": [dt.time(0), dt.time(23, 59, 59, 999999), dt.time(12), dt.time(0, 0, 0, 1), dt.time(1, 2, 3)],
    "u8": [0, 255, 1, 128, 127],
    "u16": [0, 65535, 1, 32768, 32767],
    "u32": [0, 2**32 - 1, 1, 2**31, 2**31 - 1],
    "u64": [0, 2**64 - 1, 1, 2**63, 2**63 - 1],
    "tags": [[], [""], [None], ["😀", "é", "a,b"], ["", None, ""]],
    "ns": [[], [None], [-(2**63), 2**63 - 1], [0, 0, 0], [1]],
    "nn": [[], [[]], [[None]], [[1], [], [2, 3]], [[1, 1]]],
    "w": [Decimal("-1.55"), Decimal("-1.5"), Decimal("0.00001"), Decimal("-0.00001"), Decimal("10")],
    "wi": [Decimal(0), Decimal(10**60 - 1), Decimal(-(10**60) + 1), Decimal(9), Decimal(10)],
    "m": [[], [("", 0)], [("😀", -(2**63))], [("a", None)], [("x", 2**63 - 1)]],
}


def _table(values: dict[str, list[Any]]) -> pa.Table:
    """The values, followed by a row of NULLs."""
    rows = len(next(iter(values.values())))
    arrays = [pa.array([*values.get(name, [None] * rows), None], kind) for name, (_, kind) in _TYPES.items()]
    return pa.table(arrays, names=list(_TYPES))


TABLES = {"ordinary": _table(_ORDINARY), "extreme": _table(_EXTREME)}
"""The Arrow tables; Spark gets the carriers."""


def carried(table: pa.Table) -> pa.Table:
    """The table as Spark gets it."""
    schema = arrow_schema(COLUMNS)
    return pa.Table.from_batches([cast_batch(batch, schema, "test") for batch in table.combine_chunks().to_batches()])


def spark_schema() -> str:
    return ", ".join(f"{field.name} {spark_type(field.type)}" for field in COLUMNS)
