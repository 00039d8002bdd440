"""Values on their way into a Python function and out of it: every type, every cast."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.formats.arrow import arrow_type
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
    INT64,
    INTERVAL,
    NULL,
    OPERATION_FIELD,
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
from streamling.transforms.python.columns import Casting, builder
from streamling.transforms.python.values import Notice, RowMaker, unpacker
from support.python_nodes import run_code
from support.typed_values import CASES, MOMENTS, integers

BERLIN = DataType("timestamp", zone="Europe/Berlin")
TYPES = [(type_, values) for type_, values, _ in CASES] + [
    (FLOAT16, st.floats(width=16, allow_nan=False)),
    (DATE64, st.dates()),
    (TIME32, st.times().map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000))),
    (TIME64, st.times()),
    (DURATION, st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000))),
    (INTERVAL, st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
    (NULL, st.none()),
    (DataType("binary", length=4), st.binary(min_size=4, max_size=4)),
    (BERLIN, st.datetimes(datetime(2, 1, 1), datetime(9999, 12, 1)).map(lambda value: value.replace(tzinfo=UTC))),  # noqa: DTZ001
    (
        map_of(STRING, INT64),
        st.dictionaries(integers(64), st.none() | st.text("ab"), max_size=3).map(dict.items).map(list),
    ),
    (
        list_of(struct_of(Field("at", TIMESTAMP_UTC), Field("tags", map_of(list_of(decimal(9, 2)))))),
        st.lists(
            st.none()
            | st.fixed_dictionaries(
                {
                    "at": st.none() | MOMENTS.map(lambda value: value.replace(tzinfo=UTC)),
                    "tags": st.none()
                    | st.dictionaries(
                        st.text("xyz"),
                        st.none()
                        | st.lists(st.none() | st.integers(0, 10**8).map(lambda n: Decimal(n) / 100), max_size=2),
                        max_size=2,
                    ).map(lambda made: list(made.items())),
                }
            ),
            max_size=3,
        ),
    ),
]


@pytest.mark.parametrize("per", ["row", "batch"])
@pytest.mark.parametrize(
    ("type_", "values"), TYPES, ids=lambda value: str(value) if isinstance(value, DataType) else ""
)
def test_every_type_passes_unchanged(type_: DataType, values: st.SearchStrategy[Any], per: str) -> None:
    """Some thousand rows in all."""
    schema = Schema((Field("v", type_), OPERATION_FIELD))

    @settings(max_examples=10, deadline=None)
    @given(st.lists(st.none() | values, max_size=100))
    def check(column: list[Any]) -> None:
        whole = pa.array([None, *column], arrow_type(type_))
        for array in (whole, whole.slice(1)):  # a column may be part of a larger one
            operations = pa.array(["u"] * len(array), pa.string())
            batch = pa.RecordBatch.from_arrays([array, operations], names=["v", "_gs_op"])
            done = run_code("def process(x): return x", batch, schema, per=per)
            assert done.bad == []
            assert done.column("v").equals(array)
            assert done.column("_gs_op").equals(operations)

    check()


def test_what_a_function_gets() -> None:
    moment = datetime(2024, 2, 29, 12, 30, 15, 250, tzinfo=UTC)
    got: list[tuple[DataType, Any, Any]] = [
        (UINT64, Decimal(2**64 - 1), 2**64 - 1),
        (INT64, -(2**63), -(2**63)),
        (decimal(12, 2), Decimal("3.50"), Decimal("3.50")),
        (decimal(60, 3), "12.500", Decimal("12.500")),
        (decimal_arb(80, 0), "9" * 80, int("9" * 80)),
        (decimal_arb(80, 2), "1.25", Decimal("1.25")),
        (U256, str(2**256 - 1), 2**256 - 1),
        (TIMESTAMP, moment, moment.replace(tzinfo=None)),
        (TIMESTAMP_UTC, moment, moment),
        (BERLIN, moment, moment),
        (DATE, date(2024, 2, 29), date(2024, 2, 29)),
        (TIME64, time(1, 2, 3, 4), time(1, 2, 3, 4)),
        (DURATION, timedelta(days=1), timedelta(days=1)),
        (BINARY, b"\x00\xff", b"\x00\xff"),
        (map_of(INT64), [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (struct_of(Field("x", list_of(STRING))), {"x": ["a", None]}, {"x": ["a", None]}),
    ]
    for type_, value, expected in got:
        (made, nothing) = unpacker(type_, Notice())(pa.array([value, None], arrow_type(type_)))
        assert (made, type(made), nothing) == (expected, type(expected), None), type_
    (berlin,) = unpacker(BERLIN, Notice())(pa.array([moment], arrow_type(BERLIN)))
    assert berlin.utcoffset() == timedelta(hours=1)


def test_a_date_that_python_does_not_have_is_found_also_inside_of_other_values() -> None:
    far = struct_of(Field("at", list_of(DATE)))
    schema = Schema((Field("d", DATE), Field("t", TIMESTAMP_UTC), Field("s", far), OPERATION_FIELD))
    day = pa.array([10**7, 0, 0, 0], pa.int32())
    inner = pa.array([None, [0], [0, 10**7], []], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    moments = pa.array([0, 2**62, 0, None], pa.int64()).cast(arrow_type(TIMESTAMP_UTC))
    columns = [day.cast(pa.date32()), moments, pa.StructArray.from_arrays([inner], ["at"]), pa.array(["i"] * 4)]
    rows, unfit = RowMaker(schema).rows(pa.RecordBatch.from_arrays(columns, names=list(schema.names)))
    assert list(unfit) == [0, 1, 2]
    assert "column 't' has a date outside of the years 1 to 9999" in unfit[1]
    assert rows[3] == {"d": date(1970, 1, 1), "t": None, "s": {"at": []}, "_gs_op": "i"}


ACCEPTED: list[tuple[DataType, Any, Any]] = [
    (STRING, 42, "42"),
    (STRING, True, "true"),
    (STRING, {"a": [1, None, "ä"]}, '{"a": [1, null, "ä"]}'),
    (STRING, Decimal("1E+2"), "100"),
    (STRING, b"\x01", "01"),
    (STRING, date(2024, 1, 2), "2024-01-02"),
    (STRING, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (INT64, 2.9, 2),
    (INT64, -2.9, -2),
    (INT64, "7", 7),
    (INT64, " -7.9 ", -7),
    (INT64, True, 1),
    (INT64, Decimal("3.7"), 3),
    (INT64, "9007199254740993", 9007199254740993),
    (INT64, "seven", None),
    (INT64, float("nan"), None),
    (INT64, float("inf"), None),
    (INT64, 2**63, None),
    (INT64, "1e999999", None),
    (INT8, 128, None),
    (UINT8, 255, 255),
    (UINT8, -1, None),
    (UINT64, 2**64 - 1, Decimal(2**64 - 1)),
    (FLOAT64, 3, 3.0),
    (FLOAT64, 2**80, float(2**80)),
    (FLOAT64, "1.5", 1.5),
    (FLOAT64, True, 1.0),
    (FLOAT64, "x", None),
    (FLOAT64, float("inf"), float("inf")),
    (FLOAT32, Decimal("0.5"), 0.5),
    (BOOLEAN, "TRUE", True),
    (BOOLEAN, "0", False),
    (BOOLEAN, 2, True),
    (BOOLEAN, 0.0, False),
    (BOOLEAN, "maybe", None),
    (BOOLEAN, [], None),
    (decimal(12, 2), 3, Decimal("3.00")),
    (decimal(12, 2), 0.1, Decimal("0.10")),
    (decimal(12, 2), "1e3", Decimal("1000.00")),
    (decimal(60, 3), Decimal("12.5"), "12.500"),
    (decimal(60, 3), Decimal("-0.000"), "0"),
    (decimal_arb(5000, 0), 10**4990, "1" + "0" * 4990),
    (U256, 2**256 - 1, str(2**256 - 1)),
    (I256, "-5", "-5"),
    (DATE, "2024-02-29", date(2024, 2, 29)),
    (DATE, 86_400_000, date(1970, 1, 2)),
    (DATE, datetime(2024, 1, 1, 23, tzinfo=timezone(timedelta(hours=-2))), date(2024, 1, 2)),
    (TIMESTAMP, 1500, datetime(1970, 1, 1, 0, 0, 1, 500_000)),  # noqa: DTZ001
    (TIMESTAMP, 0.25, datetime(1970, 1, 1, 0, 0, 0, 250)),  # noqa: DTZ001
    (TIMESTAMP, datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), datetime(2024, 1, 1)),  # noqa: DTZ001
    (TIMESTAMP_UTC, datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
    (TIMESTAMP_UTC, "2024-01-01T02:00:00+02:00", datetime(2024, 1, 1, tzinfo=UTC)),
    (TIMESTAMP_UTC, "2024-01-01T00:00:00Z", datetime(2024, 1, 1, tzinfo=UTC)),
    (TIMESTAMP_UTC, date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
    (TIME64, "01:02:03.5", time(1, 2, 3, 500_000)),
    (TIME64, 1000, time(0, 0, 1)),
    (DURATION, "-48:00:00", timedelta(days=-2)),
    (DURATION, 1.5, timedelta(microseconds=1500)),
    (BINARY, "0aFF", b"\x0a\xff"),
    (BINARY, bytearray(b"ab"), b"ab"),
    (list_of(INT64), (1, "2", None), [1, 2, None]),
    (map_of(INT64), {"a": "1"}, [("a", 1)]),
    (map_of(INT64, INT64), [["5", 6]], [(5, 6)]),
    (struct_of(Field("a", INT64), Field("b", STRING)), {"a": "1", "c": 2}, {"a": 1, "b": None}),
]


@pytest.mark.parametrize(
    ("type_", "value", "expected"), ACCEPTED, ids=lambda part: ascii(part)[:40] if not isinstance(part, int) else ""
)
def test_a_value_is_cast_to_the_type_of_its_column(type_: DataType, value: Any, expected: Any) -> None:
    casting = Casting()
    made = builder(type_)([None, value], casting)
    assert made.type == arrow_type(type_)
    assert (made.to_pylist(), casting.faults) == ([None, expected], {})
    assert casting.nulled == (expected is None)


class Odd(int):
    def __int__(self) -> int:
        raise RuntimeError


REFUSED: list[tuple[DataType, Any, str]] = [
    (STRING, "\ud800", "half of a character"),
    (STRING, object, "is not text"),
    (STRING, 10**5000, "a value of type int is not a value that JSON can hold"),
    (STRING, {(1, 2): 3}, "JSON"),
    (STRING, {"a": "\ud800"}, "half of a character"),
    (INT64, Odd(), "is not a value that can be cast"),
    (INT64, {}, "{} is not a number"),
    (FLOAT64, datetime(2024, 1, 1, tzinfo=UTC), "is not a number"),
    (decimal(5, 2), Decimal("1.234"), "is not a decimal(5,2): it has too many digits; round it"),
    (decimal(5, 2), 1000, "too many digits"),
    (decimal(5, 2), "x", "'x' is not a number"),
    (decimal(5, 2), float("nan"), "is not a number"),
    (decimal(5, 2), True, "is not a number"),
    (decimal(60, 3), Decimal("0.0001"), "too many digits"),
    (U256, -1, "out of range"),
    (I256, 2**255, "out of range"),
    (DATE, "soon", "is not a timestamp"),
    (TIMESTAMP, 10**20, "is not a"),
    (TIMESTAMP, True, "is not a timestamp"),
    (TIME64, "25:00:00", "is not a time of day"),
    (DURATION, "soon", "is not a time or duration"),
    (BINARY, "xyz", "is not hexadecimal text"),
    (DataType("binary", length=2), b"abc", "is not 2 bytes long"),
    (list_of(INT64), "12", "is not a list"),
    (list_of(list_of(BINARY)), [[], [b"a", 5]], "5 is not bytes"),
    (map_of(INT64), {"a": {}}, "{} is not a number"),
    (map_of(INT64, INT64), {"x": 1}, "'x' is not a valid key"),
    (struct_of(Field("a", struct_of(Field("b", DATE)))), {"a": {"b": "x"}}, "a: b: 'x' is not a timestamp"),
    (struct_of(Field("a", INT64)), [1], "[1] is not a dict"),
]


@pytest.mark.parametrize(
    ("type_", "value", "message"), REFUSED, ids=lambda part: ascii(part)[:40] if not isinstance(part, int) else ""
)
def test_a_value_that_does_not_fit_is_a_fault_of_its_row_alone(type_: DataType, value: Any, message: str) -> None:
    casting = Casting()
    made = builder(type_)([None, None, value], casting)
    assert len(made) == 3
    assert list(casting.faults) == [2]
    assert message in casting.faults[2]


def test_text_nested_deeper_than_python_can_follow_is_a_fault_of_its_row() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    casting = Casting()
    assert builder(STRING)(["a", value], casting).to_pylist() == ["a", None]
    assert casting.faults == {1: "a value of type list is not a value that JSON can hold"}


def test_an_odd_value_changes_nothing_for_the_others() -> None:
    casting = Casting()
    made = builder(INT64)([1, 2**62 + 1, "3", None, 2.5, "x"], casting)
    assert made.to_pylist() == [1, 2**62 + 1, 3, None, 2, None]
    assert casting.nulled == 1
