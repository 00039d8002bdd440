"""A row that is stored in a dead letter comes back with the same values, whatever the types of its columns."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamling.formats.arrow import arrow_schema
from streamling.formats.exchange import to_plugin
from streamling.formats.json import json_row
from streamling.formats.letter_rows import LetterRows, UnfitRow
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
    Schema,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)

FAR_US = 2**62
BERLIN = DataType("timestamp", zone="Europe/Berlin")
VALUES: list[tuple[DataType, list[Any]]] = [
    (NULL, [None]),
    (BOOLEAN, [True, False]),
    (INT8, [-128]),
    (INT64, [2**63 - 1, -(2**63)]),
    (UINT8, [255]),
    (UINT64, [Decimal(2**64 - 1)]),
    (FLOAT16, [0.5]),
    (FLOAT32, [0.10000000149011612, 3.4028234663852886e38, 1e-45, math.inf]),
    (FLOAT64, [0.1, 1e22, 5e-324, -1.7e308, math.nan, -math.inf]),
    (STRING, ["", "ü\0\n'\"", "NaN"]),
    (BINARY, [b"", b"\x00\xff0x"]),
    (DataType("binary", length=2), [b"ab"]),
    (DATE, [0, -719_500, 10**8, -(10**6)]),
    (DATE64, [19_000]),
    (TIMESTAMP, [0, 1_700_000_000_123_456, -1, FAR_US, -FAR_US]),
    (TIMESTAMP_UTC, [1_700_000_000_000_001, FAR_US]),
    (BERLIN, [1_700_000_000_000_000]),
    (DataType("timestamp", unit="ns"), [1_700_000_000_000_001]),
    (TIME32, [1_000]),
    (TIME64, [86_399_999_999]),
    (DURATION, [-1, 10**15]),
    (INTERVAL, ["1 day"]),
    (decimal(5, 2), [Decimal("1.50"), Decimal("-0.01")]),
    (decimal(38, 18), [Decimal("12345678901234567890.123456789012345678")]),
    (decimal(38, 0), [Decimal(10**38 - 1)]),
    (decimal(76, 20), ["1234567890123456789012345678901234567890.12345678901234567890"]),
    (decimal_arb(200, 0), ["9" * 200]),
    (U256, [str(2**256 - 1)]),
    (I256, [str(-(2**255))]),
    (list_of(decimal(38, 18)), [[Decimal("0.123456789012345678"), None], []]),
    (list_of(FLOAT64), [[math.nan, 1.5]]),
    (list_of(BERLIN), [[1_700_000_000_000_000, None]]),
    (map_of(INT64), [[("a", 1), ("", None)]]),
    (map_of(STRING, INT32), [[(7, "x")]]),
    (map_of(list_of(U256), BINARY), [[(b"k\x00", [str(2**200)])]]),
    (
        struct_of(Field("d", DATE), Field("deep", struct_of(Field("l", list_of(BINARY))))),
        [{"d": 3, "deep": {"l": [b"x"]}}],
    ),
]


def table_of(type_: DataType, values: list[Any]) -> tuple[Schema, pa.RecordBatch]:
    columns = Schema((Field("x", type_),))
    schema = arrow_schema(columns)
    return columns, pa.RecordBatch.from_arrays([pa.array([*values, None], schema.field(0).type)], schema=schema)


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda value: str(value)[:30])
def test_values_survive_a_letter(type_: DataType, values: list[Any]) -> None:
    columns, batch = table_of(type_, values)
    rows = LetterRows(columns)
    stored = [json.loads(json.dumps(json_row(batch, n))) for n in range(batch.num_rows)]
    restored = rows.batch([rows.values(row) for row in stored])
    assert restored.schema == batch.schema
    assert repr(restored.to_pydict() if _is_near(values) else _numbers(restored)) == repr(
        batch.to_pydict() if _is_near(values) else _numbers(batch)
    )


def _is_near(values: list[Any]) -> bool:
    """Whether Python has all of the values: its years end at 9999."""
    return not any(isinstance(value, int) and abs(value) in (FAR_US, 10**8, 10**6) for value in values)


def _numbers(batch: pa.RecordBatch) -> list[int | None]:
    column = batch.column(0)
    width = pa.int32() if pa.types.is_date(column.type) else pa.int64()
    numbers: list[int | None] = column.view(width).to_pylist()
    return numbers


@pytest.mark.parametrize(
    "type_", [UINT64, DATE64, TIME32, DataType("timestamp", unit="ns"), DataType("binary", length=2)]
)
def test_a_letter_of_a_plugin_has_the_types_of_plugins(type_: DataType) -> None:
    values = next(values for other, values in VALUES if other == type_)
    columns, batch = table_of(type_, values)
    rows = LetterRows(columns)
    assert rows.batch([rows.values(json_row(to_plugin(batch, columns, "n"), 0))]) == batch.slice(0, 1)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({}, "the dead letter has no column 'x', which is read now"),
        (None, "the dead letter has no row"),
        ({"x": "one"}, "column 'x': \"one\" is not a valid int8"),
        ({"x": 300}, "column 'x': 300 is not a valid int8"),
        ({"x": None}, "column 'x' is null, which is not allowed now"),
    ],
)
def test_a_row_that_the_columns_cannot_hold_any_more_is_refused(row: object, why: str) -> None:
    with pytest.raises(UnfitRow) as raised:
        LetterRows(Schema((Field("x", INT8, nullable=False),))).values(row)
    assert str(raised.value) == why
