"""Types as authors write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamling.plan.flat_types import UnknownType
from streamling.plan.types import DataType
from streamling.plan.written_types import NAMES, declared_type


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
        ("bigint", "int64"),
        ("VARCHAR(20)", "string"),
        ("character varying", "string"),
        ("double  precision", "float64"),
        ("float", "float32"),
        ("timestamptz", "timestamp(UTC)"),
        ("timestamp with time zone", "timestamp(UTC)"),
        ("timestamp(us)", "timestamp"),
        ("numeric(12,2)", "decimal(12,2)"),
        ("numeric(50, 2)", "decimal(50,2)"),
        ("int[]", "list<int32>"),
        ("decimal(10,2)[] []", "list<list<decimal(10,2)>>"),
        ("Array<Text>", "list<string>"),
        ("map<string, double>", "map<string, float64>"),
        ("struct<a:int,b:list<struct<c:text[]>>>", "struct<a: int32, b: list<struct<c: list<string>>>>"),
        ('STRUCT< "a, ""b": date, `c>`: bool, d e : time >', 'struct<a, "b: date32, c>: boolean, d e: time64>'),
        ("list<Timestamp(Second, Some('+01:00'))>", "list<timestamp(s, +01:00)>"),
    ],
)
def test_a_name_means_a_type(text: str, expected: str) -> None:
    assert str(declared_type(text)) == expected


LEAVES = st.sampled_from(
    "int8 uint64 float16 string binary binary(16) boolean date64 timestamp timestamp(ms) timestamp(ns, UTC) "
    "timestamp(Europe/Oslo) timestamp(+05:30) time32 duration interval decimal(38,9)".replace(", ", ",").split()
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map("list<{}>".format),
        inner.map("map<string, {}>".format),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: f"struct<{', '.join(f'f{n}: {type_}' for n, type_ in enumerate(types))}>"
        ),
    ),
    max_leaves=6,
)


@given(TYPES)
def test_the_text_of_a_type_means_the_type(text: str) -> None:
    type_ = declared_type(text)
    assert declared_type(str(type_)) == type_


@pytest.mark.parametrize("name", [name for name in NAMES if "(" not in name])
def test_every_name_that_is_offered_is_accepted(name: str) -> None:
    assert isinstance(declared_type(name), DataType)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("banana", "unsupported data type 'banana'; accepted: int8,"),
        ("", "unsupported data type ''"),
        ("int64(3)", "unsupported data type"),
        ("lst<int64>", "unsupported data type 'lst<...>' in 'lst<int64>'"),
        ("struct<a: money>", "unsupported data type 'money'"),
        ("struct<a: money>", "it is in 'struct<a: money>'"),
        ("list<>", "unsupported data type ''"),
        ("list<int64>>", "malformed at '>'"),
        ("list<int64, int64>", "malformed at ', int64>'"),
        ("map<string>", "malformed at '>'"),
        ("map<int64, string>", "the keys of a map are text"),
        ("struct<>", "malformed at '>'"),
        ("struct<a int>", "malformed at 'a int>'"),
        ("struct<a: int, a: text>", "two fields with the name 'a'"),
        ('struct<"": int>', "a field without a name"),
        ("struct<a: int, b: null>", "null is the type of a column without values"),
        ("null[]", "null is the type of a column without values"),
        ("int[", "malformed"),
        ("list<" * 65 + "int" + ">" * 65, "deeper than 64 levels"),
        ("list<int64", "put the type in quotes"),
        ("timestamp(3)", "unsupported data type"),
        ("timestamp(3) with time zone", "unsupported data type"),
        ("timestamp(ms, Nowhere/Else)", "no time zone 'Nowhere/Else'"),
        ("Timestamp(Second, 'Somewhere')", "no time zone 'Somewhere'"),
        ("binary(0)", "unsupported data type"),
        ("numeric(77)", "from 1 to 76"),
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


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("strng", "did you mean 'string'?"),
        ("bigit", "did you mean 'bigint'?"),
        ("json", "did you mean 'string'?"),
        ("array", "did you mean 'list<type>'?"),
        ("strct<a: int>", "did you mean 'struct<name: type, ...>'?"),
        ("list<int46>", "did you mean 'int64'?"),
        ("decimal(50,2)", "did you mean 'decimal256(50,2)'?"),
    ],
)
def test_the_nearest_type_is_suggested(text: str, hint: str) -> None:
    with pytest.raises(UnknownType) as caught:
        declared_type(text)
    assert caught.value.hint == hint


NOISE = st.text(alphabet='<>,:[]()"` ainrstuc\n', max_size=30)


@given(st.text() | NOISE | st.from_regex(r"(decimal|timestamp|list|struct|map)[(<][^)]*[)>]", fullmatch=True))
def test_any_text_is_a_type_or_unknown(text: str) -> None:
    try:
        found = declared_type(text)
    except UnknownType as error:
        assert str(error)
    else:
        assert isinstance(found, DataType)
