"""Types as authors write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamling.plan.types import DataType
from streamling.plan.written_types import NAMES, UnknownType, declared_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int64", "int64"),
        ("INT64", "int64"),
        (" Int64 ", "int64"),
        ("uint64", "uint64"),
        ("float16", "float16"),
        ("utf8", "string"),
        ("LargeUtf8", "string"),
        ("Utf8View", "string"),
        ("LargeBinary", "binary"),
        ("timestamp", "timestamp"),
        ("Timestamp(Microsecond, None)", "timestamp"),
        ("Timestamp(Millisecond)", "timestamp(ms)"),
        ('Timestamp(Nanosecond, "UTC")', "timestamp(ns, UTC)"),
        ('Timestamp(Second, Some("+01:00"))', "timestamp(s, +01:00)"),
        ("time32", "time32"),
        ("Time32(Second)", "time32"),
        ("Time64(Nanosecond)", "time64"),
        ("Duration(Millisecond)", "duration"),
        ("Interval(MonthDayNano)", "interval"),
        ("null", "null"),
        ("decimal", "decimal(38,9)"),
        ("DECIMAL256", "decimal(38,9)"),
        ("decimal(20)", "decimal(20,0)"),
        ("decimal128( 20 , 4 )", "decimal(20,4)"),
        ("decimal256(76,76)", "decimal(76,76)"),
    ],
)
def test_a_name_means_a_type(text: str, expected: str) -> None:
    assert str(declared_type(text)) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if "(" not in name])
def test_every_name_that_is_offered_is_accepted(name: str) -> None:
    assert isinstance(declared_type(name), DataType)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("banana", "unsupported data type 'banana'; accepted: int8,"),
        ("", "unsupported data type ''"),
        ("int64(3)", "unsupported data type"),
        ("list<int64>", "unsupported data type"),
        ("Timestamp(Fortnight)", "unsupported data type"),
        ("Timestamp(Second, a, b)", "unsupported data type"),
        ("Time32(Nanosecond)", "unsupported data type"),
        ("Time64(Second)", "unsupported data type"),
        ("decimal(10,2,3)", "malformed"),
        ("decimal(a)", "malformed"),
        ("decimal()", "malformed"),
        ("decimal(10,-2)", "malformed"),
        ("decimal(39,0)", "from 1 to 38"),
        ("decimal256(77,0)", "from 1 to 76"),
        ("decimal(0)", "from 1 to 38"),
        ("decimal(5,6)", "scale must not be greater"),
        ("decimal(12", "put the type in quotes"),
    ],
)
def test_anything_else_says_what_is_wrong(text: str, fragment: str) -> None:
    with pytest.raises(UnknownType) as caught:
        declared_type(text)
    assert fragment in str(caught.value)


@given(st.text() | st.from_regex(r"(decimal|timestamp|time32|duration)\([^)]*\)", fullmatch=True))
def test_any_text_is_a_type_or_unknown(text: str) -> None:
    try:
        found = declared_type(text)
    except UnknownType as error:
        assert str(error)
    else:
        assert isinstance(found, DataType)
