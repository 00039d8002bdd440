"""Every type that a column may have in Avro, with values of it as rows hold them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    I256,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    TIMESTAMP_UTC,
    U256,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    Field,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 63, 64]))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    whole = st.one_of(st.integers(-most, most), st.sampled_from([0, 1, -1, 127, 128, -128, -129, most, -most]))
    return whole.map(lambda number: Decimal(f"{number}E-{scale}"))


def digits(precision: int, scale: int) -> st.SearchStrategy[str]:
    return decimals(precision, scale).map(lambda number: f"{number:.{scale}f}" if number else "0")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001
# Type, its values, and what a reader should give for one.
CASES: list[tuple[DataType, st.SearchStrategy[Any], Any]] = [
    (BOOLEAN, st.booleans(), None),
    (INT8, integers(8), None),
    (INT16, integers(16), None),
    (INT32, integers(32), None),
    (INT64, integers(64), None),
    (UINT8, integers(8, signed=False), None),
    (UINT16, integers(16, signed=False), None),
    (UINT32, integers(32, signed=False), None),
    (UINT64, st.integers(0, 2**63 - 1).map(Decimal), int),
    (FLOAT32, st.floats(width=32, allow_nan=False), None),
    (FLOAT64, st.floats(allow_nan=False), None),
    (STRING, TEXTS, None),
    (BINARY, st.binary(max_size=70), None),
    (DATE, st.dates(), None),
    (TIMESTAMP, MOMENTS, lambda value: value.replace(tzinfo=UTC)),
    (TIMESTAMP_UTC, MOMENTS.map(lambda value: value.replace(tzinfo=UTC)), None),
    (
        DataType("timestamp", unit="ms"),
        MOMENTS.map(lambda v: v.replace(microsecond=v.microsecond // 1000 * 1000)),
        lambda value: value.replace(tzinfo=UTC),
    ),
    (decimal(9, 2), decimals(9, 2), None),
    (decimal(38, 10), decimals(38, 10), None),
    (decimal(60, 30), digits(60, 30), Decimal),
    (decimal_arb(100, 18), digits(100, 18), Decimal),
    (U256, st.integers(0, 2**256 - 1).map(str), Decimal),
    (I256, st.integers(-(2**255), 2**255 - 1).map(str), Decimal),
    (list_of(INT64), st.lists(st.none() | integers(64), max_size=5), None),
    (list_of(list_of(STRING)), st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=3), max_size=3), None),
    (
        map_of(decimal(20, 4)),
        st.dictionaries(TEXTS, st.none() | decimals(20, 4), max_size=3).map(dict.items).map(list),
        dict,
    ),
    (
        struct_of(Field("x", INT64, False), Field("y", list_of(decimal_arb(80, 0)))),
        st.fixed_dictionaries({"x": integers(64), "y": st.none() | st.lists(digits(80, 0), max_size=3)}),
        lambda value: {
            **value,
            "y": value["y"] and [Decimal(n) for n in value["y"]] if value["y"] is not None else None,
        },
    ),
]
