"""The type of a ClickHouse column gives one of ours, or an error that names column and type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamling.errors import UserError
from streamling.formats.clickhouse_syntax import call_arguments, plain_name, plain_text, quote_name, split_list
from streamling.formats.clickhouse_types import clickhouse_type, column_type
from streamling.plan.types import I256, U256, DataType, Field, decimal, struct_of
from support.clickhouse_columns import COLUMNS


def shown(text: str) -> str:
    type_, nullable = column_type(text, "c")
    return f"{type_} or null" if nullable else str(type_)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((column.type, column.logical) for column in COLUMNS.values()),
        ("Enum8('a' = 1, 'b' = -2)", "string"),
        ("Enum16('it''s, (odd)' = 1, 'a\\'b' = 300)", "string"),
        ("Nothing", "null or null"),
        ("Nullable(Nothing)", "null or null"),
    ],
)
def test_types_of_columns(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Decimal(76,76)", decimal(76, 76)),
        ("Decimal(76,0)", decimal(76, 0)),
    ],
)
def test_decimals_keep_their_digits(text: str, expected: DataType) -> None:
    assert column_type(text, "c") == (expected, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DateTime64(0)", "timestamp(s)"),
        ("DateTime64(1)", "timestamp(ms)"),
        ("DateTime64(3, 'UTC')", "timestamp(ms, UTC)"),
        ("DateTime64(6)", "timestamp"),
    ],
)
def test_times_know_how_fine_they_are_and_their_zone(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nullable(Int64)", "int64 or null"),
        ("LowCardinality(String)", "string"),
        ("SimpleAggregateFunction(anyLast, Nullable(UInt8))", "uint8 or null"),
        ("Tuple(Int8, Tuple(String, Date))", "struct<1: int8, 2: struct<1: string, 2: date32>>"),
        ("Tuple(Enum8('a b' = 1), DateTime64(3, 'UTC'))", "struct<1: string, 2: timestamp(ms, UTC)>"),
        ("Nested(a Int8, b Nested(c String))", "list<struct<a: int8, b: list<struct<c: string>>>>"),
    ],
)
def test_types_inside_of_types(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_members_of_tuples_have_names_of_any_characters_and_their_own_nulls() -> None:
    type_, _ = column_type('Tuple(a Nullable(Int256), `b c, (\\`)` UInt256, "d" String)', "c")
    expected = (Field("a", I256), Field("b c, (`)", U256, nullable=False), Field("d", DataType("string"), False))
    assert type_ == struct_of(*expected)


@pytest.mark.parametrize("text", ["Int64", "Decimal(76,5)", "Tuple(a Int64, `b c` Nullable(String))", "Array(Date)"])
def test_what_we_would_write_is_read_as_the_same(text: str) -> None:
    type_, nullable = column_type(text, "c")
    assert clickhouse_type(type_, nullable=nullable) == text


@pytest.mark.parametrize(
    "text",
    [
        "AggregateFunction(quantiles(0.5, 0.9), UInt64)",
        "JSON",
        "JSON(max_dynamic_paths = 8, a.b UInt32, SKIP c)",
        "Variant(Int8, String)",
        "Dynamic",
        "Point",
        "IntervalDay",
        "Time64(3)",
        "Decimal(77, 0)",
        "Decimal(5, 6)",
        "Decimal32(10)",
        "FixedString(0)",
        "DateTime64(10)",
        "DateTime(UTC)",
        "Tuple()",
        "Nullable",
        "Int64(3)",
        "",
    ],
)
def test_other_types_are_refused_with_the_name_of_the_column(text: str) -> None:
    with pytest.raises(UserError) as caught:
        column_type(text, "odd one")
    assert caught.value.code == "SCHEMA_UNUSABLE"
    assert f"the column 'odd one' has the ClickHouse type {text}, which cannot be read" in caught.value.message


def test_the_part_at_fault_is_named() -> None:
    with pytest.raises(UserError, match=r"type Array\(Tuple\(a Int8, b JSON\)\), which .* because of JSON$"):
        column_type("Array(Tuple(a Int8, b JSON))", "c")


@pytest.mark.parametrize("text", ["Array(" * 5000 + "Int8" + ")" * 5000, "Tuple(`a Int8)", "Array(Int8", "x" * 10_000])
def test_hopeless_texts_are_refused_in_short(text: str) -> None:
    with pytest.raises(UserError) as caught:
        column_type(text, "c")
    assert len(caught.value.message) < 600


PIECES = ["Nullable", "Array", "Tuple", "Map", "Decimal", "DateTime64", "Enum8", "Int8", "a", "3", "(", ")", ",", " "]


@given(st.text(max_size=60) | st.lists(st.sampled_from([*PIECES, "'", "`", '"', "\\", "="]), max_size=20).map("".join))
def test_garbage_is_never_more_than_an_error_of_the_user(text: str) -> None:
    try:
        column_type(text, "c")
    except UserError as error:
        assert error.code == "SCHEMA_UNUSABLE"


@given(st.text(min_size=1))
def test_quoted_names_are_read_back(name: str) -> None:
    assert plain_name(quote_name(name)) == name


def test_lists_are_split_outside_of_parentheses_and_quotes() -> None:
    assert split_list("a, intDiv(b, 2), `c, (d`, 'e\\', f'") == ("a", "intDiv(b, 2)", "`c, (d`", "'e\\', f'")
    assert split_list(" ") == ()


def test_the_arguments_of_a_call_end_where_its_parentheses_do() -> None:
    assert call_arguments("Engine('a)', b, [c, d]) ORDER BY (e, f)") == ("'a)'", "b", "[c, d]")
    assert call_arguments("Engine ORDER BY (e, f)") == ()


def test_texts_and_names_lose_their_quotes_and_escapes() -> None:
    assert plain_text(r"'a\n\'b''c\\'") == "a\n'b'c\\"
    assert plain_text("a") is None
    assert plain_name('"a b"') == "a b"
    assert plain_name("intDiv(a, 2)") is None
