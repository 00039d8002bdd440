"""Rows become JSON objects: all columns in order, nulls written, every digit kept."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.formats.arrow import arrow_schema
from streamling.formats.json import json_row, json_rows
from streamling.formats.time_text import time_text
from streamling.plan.types import STRING, Field, Schema, decimal, decimal_arb, list_of, map_of, struct_of


def texts(values: list[object], type_: pa.DataType) -> list[str]:
    """The JSON of each value of a column `x`."""
    rows = json_rows(pa.RecordBatch.from_arrays([pa.array(values, type_)], names=["x"]))
    assert all(row.startswith('{"x":') and row.endswith("}") for row in rows)
    return [row.removeprefix('{"x":').removesuffix("}") for row in rows]


POINT = pa.struct([("x", pa.int64()), ("name", pa.string())])
BERLIN = datetime(2024, 5, 6, 9, 8, 9, tzinfo=timezone(timedelta(hours=2)))

CASES = {
    "int8": (pa.int8(), -128, "-128"),
    "int16": (pa.int16(), 32767, "32767"),
    "int32": (pa.int32(), 7, "7"),
    "int64, all digits": (pa.int64(), 9223372036854775807, "9223372036854775807"),
    "boolean": (pa.bool_(), True, "true"),
    "null type": (pa.null(), None, "null"),
    "float": (pa.float64(), 1.5, "1.5"),
    "float, shortest form": (pa.float64(), 0.1, "0.1"),
    "NaN": (pa.float64(), float("nan"), "null"),
    "infinity": (pa.float64(), float("-inf"), "null"),
    "short float, whole": (pa.float32(), 3.0, "3.0"),
    "short float, shortest form": (pa.float32(), 0.1, "0.1"),
    "short float, large": (pa.float32(), 1e20, "1e+20"),
    "float, minus zero": (pa.float64(), -0.0, "-0.0"),
    "short float, minus zero": (pa.float32(), -0.0, "-0.0"),
    "float32 NaN": (pa.float32(), float("nan"), "null"),
    "decimal, trailing zeros": (pa.decimal128(10, 3), Decimal("1.500"), "1.500"),
    "decimal, 38 digits": (pa.decimal128(38, 0), Decimal("9" * 38), "9" * 38),
    "decimal, tiny": (pa.decimal128(38, 20), Decimal("0.00000000000000000001"), "0.00000000000000000001"),
    "decimal, zero": (pa.decimal128(38, 10), Decimal("0"), "0.0000000000"),
    "text": (pa.string(), "plain", '"plain"'),
    "text with quotes, backslash, newline": (pa.string(), 'a"b\\c\nd', r'"a\"b\\c\nd"'),
    "text with control characters": (pa.string(), "\x00\x1f", r'"\u0000\u001f"'),
    "text outside ASCII": (pa.string(), "Grüße 🚀", '"Grüße 🚀"'),
    "text with percent": (pa.string(), "100%s", '"100%s"'),
    "large text": (pa.large_string(), 'a"b', r'"a\"b"'),
    "binary": (pa.binary(), b"\x00\xfe\xff", '"00feff"'),
    "empty binary": (pa.binary(), b"", '""'),
    "date": (pa.date32(), date(2024, 2, 29), '"2024-02-29"'),
    "time": (pa.time64("us"), time(1, 2, 3, 4), '"01:02:03.000004"'),
    "timestamp": (pa.timestamp("us"), datetime(2024, 5, 6, 7, 8, 9), '"2024-05-06T07:08:09"'),  # noqa: DTZ001
    "timestamp, micros": (pa.timestamp("us"), datetime(2024, 5, 6, 7, 8, 9, 10), '"2024-05-06T07:08:09.000010"'),  # noqa: DTZ001
    "instant": (pa.timestamp("us", "UTC"), datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), '"2024-05-06T07:08:09Z"'),
    "instant given elsewhere": (pa.timestamp("us", "+02:00"), BERLIN, '"2024-05-06T07:08:09Z"'),
    "instant before 1970": (pa.timestamp("us", "UTC"), datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00Z"'),
    "duration in microseconds": (pa.duration("us"), timedelta(seconds=-1, microseconds=1), "-999999"),
    "list": (pa.list_(pa.int64()), [1, None, 3], "[1,null,3]"),
    "empty list": (pa.list_(pa.int64()), [], "[]"),
    "struct": (POINT, {"x": 1, "name": 'q"'}, r'{"x":1,"name":"q\""}'),
    "struct with null": (POINT, {"x": None, "name": None}, '{"x":null,"name":null}'),
    "map": (pa.map_(pa.string(), pa.int64()), [("b", 1), ('a"', None)], r'{"b":1,"a\"":null}'),
    "list of structs": (pa.list_(POINT), [{"x": 1, "name": "a"}, None], '[{"x":1,"name":"a"},null]'),
    "list of maps": (pa.list_(pa.map_(pa.string(), pa.int64())), [[("k", 1)]], '[{"k":1}]'),
    "struct of lists": (pa.struct([("l", pa.list_(pa.float64()))]), {"l": [float("nan"), 1.0]}, '{"l":[null,1.0]}'),
    "nested decimal and binary": (
        pa.struct([("d", pa.decimal128(5, 2)), ("b", pa.binary()), ("t", pa.bool_())]),
        {"d": Decimal("1.20"), "b": b"\xff", "t": False},
        '{"d":1.20,"b":"ff","t":false}',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rendering_of(case: str) -> None:
    type_, value, expected = CASES[case]
    assert texts([value], type_) == [expected]


@pytest.mark.parametrize("case", CASES)
def test_null_is_written_beside(case: str) -> None:
    type_, value, expected = CASES[case]
    assert texts([None, value, None], type_) == ["null", expected, "null"]


def test_columns_stand_in_order_without_blanks() -> None:
    batch = pa.RecordBatch.from_pydict({"z": [1, 2], "a": ["x", None], "_gs_op": ["i", "d"]})
    assert json_rows(batch) == ['{"z":1,"a":"x","_gs_op":"i"}', '{"z":2,"a":null,"_gs_op":"d"}']


@pytest.mark.parametrize("name", ["100%", "%s", "%(x)s", 'say "hi"', "back\\slash", "ü", "a\nb", "{}", ""])
def test_a_column_may_be_called_anything(name: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["%d"])], names=[name, "other"])
    (row,) = json_rows(batch)
    assert json.loads(row) == {name: 1, "other": "%d"}


def test_no_rows_give_no_text() -> None:
    assert json_rows(pa.RecordBatch.from_pydict({"x": pa.array([], pa.int64())})) == []


def test_a_slice_of_a_batch_gives_its_own_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3], "y": [True, None, False]})
    assert json_rows(batch.slice(1, 1)) == ['{"x":2,"y":null}']


@settings(max_examples=50)
@given(st.lists(st.text() | st.none(), max_size=4), st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1)))
def test_lists_and_maps_are_read_back_as_they_were(items: list[str | None], entries: dict[str, int]) -> None:
    assert json.loads(texts([items], pa.list_(pa.string()))[0]) == items
    assert json.loads(texts([list(entries.items())], pa.map_(pa.string(), pa.int64()))[0]) == entries


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_read_back_to_the_last_bit(value: float) -> None:
    assert json.loads(texts([value], pa.float64())[0]) == value


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.map_(pa.string(), pa.int64()), [], "{}"),
        (pa.struct([("m", pa.map_(pa.string(), pa.int64()))]), {"m": []}, '{"m":{}}'),
    ],
)
def test_an_empty_map_is_an_object(type_: pa.DataType, value: object, expected: str) -> None:
    assert texts([value], type_) == [expected]


@pytest.mark.parametrize("type_", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
def test_a_time_python_cannot_hold_is_still_written(type_: pa.DataType) -> None:
    assert "10000-01-01" in texts([2_932_897 if type_ == pa.date32() else 253_402_300_800_000_000], type_)[0]


EXTREMES = [
    (pa.timestamp("us"), 2**63 - 1, "294247-01-10T04:00:54.775807"),
    (pa.timestamp("us", "UTC"), 2**63 - 1, "294247-01-10T04:00:54.775807Z"),
    (pa.timestamp("us", "Europe/Berlin"), 971_890_963_200_000_000, "32768-01-01T00:00:00Z"),
    (pa.timestamp("us"), -(2**63), "-290308-12-21T19:59:05.224192"),
    (pa.date32(), 2**31 - 1, "5881580-07-11"),
    (pa.date32(), -(2**31), "-5877641-06-23"),
]


@pytest.mark.parametrize(("type_", "value", "expected"), EXTREMES)
def test_times_beyond_all_calendars_are_written_exactly(type_: pa.DataType, value: int, expected: str) -> None:
    assert texts([None, value], type_) == ["null", f'"{expected}"']
    assert texts([[value, None]], pa.list_(type_)) == [f'["{expected}",null]']
    assert texts([{"a": value}], pa.struct([("a", type_)])) == [f'{{"a":"{expected}"}}']
    assert texts([[("k", value)]], pa.map_(pa.string(), type_)) == [f'{{"k":"{expected}"}}']


@given(st.integers(-12_687_428, 11_248_737), st.integers(0, 24 * 3600 * 10**6 - 1))
def test_slow_texts_of_times_are_those_of_arrow(day: int, microsecond: int) -> None:
    moment = day * 24 * 3600 * 10**6 + microsecond
    for type_, number in ((pa.date32(), day), (pa.timestamp("us"), moment), (pa.timestamp("us", "UTC"), moment)):
        assert time_text(number, type_) == pa.array([number], type_).cast(pa.string())[0].as_py()


def test_decimals_of_up_to_76_digits_are_numbers_and_longer_ones_text() -> None:
    wide, arbitrary = decimal(50, 2), decimal_arb(90, 0)
    schema = Schema(
        (
            Field("wide", wide),
            Field("arbitrary", arbitrary),
            Field("list", list_of(wide)),
            Field("map", map_of(arbitrary)),
            Field("struct", struct_of(Field("a", wide), Field("b", arbitrary), Field("c", STRING))),
        )
    )
    digits = "1" * 48 + ".10"
    row = {
        "wide": digits,
        "arbitrary": "9" * 90,
        "list": ["-0.01", None],
        "map": [("k", "5")],
        "struct": {"a": "7", "b": "8", "c": "9"},
    }
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], arrow_schema(schema))
    assert json_rows(batch, schema) == [
        f'{{"wide":{digits},"arbitrary":"{"9" * 90}","list":[-0.01,null],"map":{{"k":"5"}},'
        '"struct":{"a":7,"b":"8","c":"9"}}',
        '{"wide":null,"arbitrary":null,"list":null,"map":null,"struct":null}',
    ]


def test_one_row_is_an_object_that_keeps_every_digit() -> None:
    prices = pa.array([Decimal("0.50"), Decimal("12345678901234567890.1234567890")], pa.decimal128(38, 10))
    batch = pa.RecordBatch.from_arrays([prices, pa.array([2**63 - 1, 1])], names=["price", "n"])
    assert json_row(batch, 0) == {"price": 0.5, "n": 2**63 - 1}
    assert json_row(pa.Table.from_batches([batch]), 1) == {"price": "12345678901234567890.1234567890", "n": 1}
