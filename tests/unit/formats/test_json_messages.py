"""JSON bodies become rows of declared columns; one that cannot be read is bad alone."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.formats.bodies import BadBody
from streamling.formats.json_messages import ObjectDecoder
from streamling.plan.types import Field
from streamling.plan.written_types import declared_type


def rows(columns: dict[str, str], *bodies: bytes) -> list[Any]:
    return decoded(ObjectDecoder([Field(name, declared_type(text)) for name, text in columns.items()]), *bodies)


def decoded(decoder: ObjectDecoder, *bodies: bytes) -> list[Any]:
    found: list[Any] = []
    for item in decoder.rows(bodies):
        found.extend([item] if isinstance(item, BadBody) else item.to_pylist())
    return found


def value(type_: str, text: str) -> Any:
    (row,) = rows({"a": type_}, b'{"a": %s}' % text.encode())
    return row if isinstance(row, BadBody) else row["a"]


def test_columns_go_by_name_others_are_ignored_missing_ones_are_null() -> None:
    bodies = (b'{"id": 1, "name": "a", "more": [1]}', b'{\n "name": "b"\n}', b'{"id": null}')
    expected = [{"id": 1, "name": "a"}, {"id": None, "name": "b"}, {"id": None, "name": None}]
    assert rows({"id": "int64", "name": "string"}, *bodies) == expected


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("int64", "9223372036854775807", 2**63 - 1),
        ("uint8", "255", 255),
        ("uint64", "18446744073709551615", Decimal(2**64 - 1)),
        ("float64", "0.30000000000000004", 0.30000000000000004),
        ("float64", "3", 3.0),
        ("boolean", "true", True),
        ("string", '"\\u00e9"', "\u00e9"),
        ("binary", '"00ff"', b"\x00\xff"),
        ("date32", '"2024-02-29"', dt.date(2024, 2, 29)),
        ("date32", "1", dt.date(1970, 1, 2)),
        ("timestamp", '"1970-01-01T00:00:01.5"', dt.timedelta(seconds=1.5)),
        ("timestamp", '"1970-01-01T02:00:00+01:00"', dt.timedelta(hours=1)),
        ("timestamp", "1500000", dt.timedelta(seconds=1.5)),
        ("decimal(10,2)", "1.25", Decimal("1.25")),
        ("decimal(10,2)", '"1.5"', Decimal("1.50")),
        ("decimal(10,2)", "1e2", Decimal("100.00")),
        ("decimal256(50,2)", '"1.5"', "1.50"),
        ("decimal256(50,2)", "-0.05", "-0.05"),
        ("decimal256(50,2)", "-0.0", "0"),
        ("decimal(38,9)", "0e3000000000", Decimal(0)),
        ("decimal(38,9)", '"0e3000000000"', Decimal(0)),
        ("decimal256(50,2)", "0e-3000000000", "0"),
        ("decimal(10,2)", "1." + "0" * 5000, Decimal("1.00")),
        ("float64", "1e-99999999999999999999", 0.0),
        ("float64", "9" * 300, 1e300),
        ("float32", "1.00000005960464477540", 1.00000011920928955078125),
        ("Timestamp(Second)", "253402300799", dt.timedelta(seconds=253402300799)),
        ("time64", '"10:00:00.5"', dt.time(10, 0, 0, 500_000)),
    ],
)
def test_values_of_each_type(type_: str, text: str, expected: Any) -> None:
    if isinstance(expected, dt.timedelta):
        expected += dt.datetime(1970, 1, 1)  # noqa: DTZ001 - columns without a zone give such
    assert value(type_, text) == expected


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("int64", "1.5"),
        ("int64", '"1"'),
        ("int64", "true"),
        ("int32", "2147483648"),
        ("uint8", "-1"),
        ("float64", '"1"'),
        ("boolean", "1"),
        ("string", "1"),
        ("binary", '"xy"'),
        ("date32", '"2024-02-30"'),
        ("timestamp", '"yesterday"'),
        ("decimal(4,2)", "1.255"),
        ("decimal(4,2)", "100"),
        ("decimal256(50,2)", '"abc"'),
        ("decimal(4,2)", "9" * 5000),
        ("decimal256(50,2)", "1e3000000000"),
        ("decimal256(50,2)", "1e-3000000000"),
        *(
            ("decimal(20,3)", f"{mantissa}e-{e}")
            for mantissa in ("5", "-1.5", "12.345678901234567")
            for e in range(20, 60)
        ),
        ("decimal(38,0)", '"1.2345678901234567890123456789012345678E-2"'),
        ("decimal(38,0)", r'"5\u0065-39"'),
        ("decimal(38,0)", r'"5e\u002D39"'),
        ("int64", "9" * 5000),
        ("string", r'"\ud83d"'),
        ("int64", r'"\ud83d"'),
        ("binary", r'"\ud83d"'),
        ("Timestamp(Second)", "1700000000000000000"),
        ("Timestamp(Millisecond)", "-1700000000000000000"),
        ("float32", "1e39"),
        ("float16", "65536"),
        ("float64", "1e309"),
        ("float64", "9" * 310),
        ("float64", "1e99999999999999999999"),
        ("time64", '"10:00:00Z"'),
        ("time32", '"10:00:00+02:00"'),
        ("date32", '"2024-01-01T00:00:00"'),
        ("date32", '"0000-01-01"'),
        ("timestamp", '"0000-01-01T00:00:00"'),
        ("timestamp", '"0000-12-31T23:00:00-02:00"'),
        ("int64", "[" * 990 + "]" * 990),
    ],
)
def test_a_value_that_does_not_fit_names_the_column(type_: str, text: str) -> None:
    bad = value(type_, text)
    assert isinstance(bad, BadBody)
    assert bad.reason == "schema_mismatch"
    assert bad.message.startswith("column 'a': ")
    bad.message.encode()  # any file and terminal can take it


def test_a_number_that_does_not_fit_is_shown_as_one() -> None:
    assert value("int64", "1.50") == BadBody("schema_mismatch", "column 'a': 1.50 is not a valid int64")
    assert value("int64", '"1.50"') == BadBody("schema_mismatch", "column 'a': \"1.50\" is not a valid int64")


@pytest.mark.parametrize(
    "body",
    [
        *(b"\xff", b"[1]", b"1", b"null", b"{", b'{"a": 1}{"a": 2}', b'{"b":{"a": 1}', b'{"a":', b'\x0c{"a": 1}'),
        *(b'{"a": NaN}', b'{"b": -Infinity}', b'{"b": [Inf]}', b'{"b": "x\ny"}', b'{"b": "x\ry"}', b'{"a": 1}\0}'),
        b'{"b":' + b"[" * 5000 + b"]" * 4999 + b"}",
        b'{"b":' + b"[" * 5000 + b"1," + b"]" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_object_is_bad_alone(body: bytes) -> None:
    found = rows({"a": "int64"}, b'{"a": 1}', body, b'{"a": 3}')
    assert [found[0], found[2]] == [{"a": 1}, {"a": 3}]
    assert found[1].reason == "decode_error"


def test_what_is_not_declared_may_be_anything_that_is_json() -> None:
    values = [rb'"\ud83d"', b"1e400", b"9" * 5000, b"1e-99999999999999999999", b"[" * 5000 + b"]" * 5000, b'"NaN, Inf"']
    values.append(b'[{"x": "]}"}, ' * 2000 + b"1" + b"]" * 2000)
    bodies = [b'{"b": %s, "a": %d}' % (value, n) for n, value in enumerate(values)]
    assert rows({"a": "int64"}, *bodies) == [{"a": n} for n in range(len(bodies))]
    assert rows({"a": "uint8"}, *bodies) == [{"a": n} for n in range(len(bodies))]


def test_objects_of_many_lines_are_read_at_once() -> None:
    bodies = [json.dumps({"a": n, "b": ["x\ny"]}, indent=1).replace("\n", end).encode() for n, end in enumerate("\n\r")]
    decoder = ObjectDecoder([Field("a", declared_type("int64"))])
    batch = decoder._decode_chunk(bodies)
    assert batch is not None
    assert batch.to_pylist() == [{"a": 0}, {"a": 1}]


@pytest.mark.parametrize("type_", ["float16", "float32", "float64"])
@pytest.mark.parametrize("text", ["-0", "-0.0", "-0e5"])
def test_a_zero_keeps_its_sign(type_: str, text: str) -> None:
    assert str(value(type_, text)) == "-0.0"


def test_halves_of_objects_do_not_make_whole_ones() -> None:
    found = rows({"a": "int64"}, b'{"b":', b'{"a": 1}}', b'{"a": 1}{"a": 2}')
    assert [type(row) for row in found] == [BadBody, BadBody, BadBody]


MESSAGE = b"""{"id": 1, "user": {"name": "Ann", "born": "2001-02-03", "tags": ["a", null], "more": [[1]]},
 "items": [{"sku": "x", "qty": 2, "price": 12345678901234567.89}, null], "labels": {"a": 1, "b": null}, "else": {}}"""
NESTED_COLUMNS = {
    "user": "struct<name: string, born: date, tags: list<string>>",
    "items": "list<struct<sku: string, qty: int32, price: decimal(20,2)>>",
}


def test_nested_values_are_read_by_arrow_with_all_their_digits() -> None:
    decoder = ObjectDecoder([Field(name, declared_type(text)) for name, text in NESTED_COLUMNS.items()])
    batch = decoder._decode_chunk([MESSAGE, b"{}", b'{"user": {}, "items": []}', b'{"user": null}'])
    assert batch is not None
    nothing = {"user": None, "items": None}
    assert batch.to_pylist() == [
        {
            "user": {"name": "Ann", "born": dt.date(2001, 2, 3), "tags": ["a", None]},
            "items": [{"sku": "x", "qty": 2, "price": Decimal("12345678901234567.89")}, None],
        },
        nothing,
        {"user": {"name": None, "born": None, "tags": None}, "items": []},
        nothing,
    ]


def test_columns_that_arrow_cannot_read_are_read_beside_it() -> None:
    columns = {"id": "int64", "labels": "map<string, int64>", "user": NESTED_COLUMNS["user"], "small": "uint8"}
    decoder = ObjectDecoder([Field(name, declared_type(text)) for name, text in columns.items()])
    batch = decoder._decode_chunk([MESSAGE, b'{"small": 255, "labels": {}}'])
    assert batch is not None
    assert batch.column("labels").to_pylist() == [[("a", 1), ("b", None)], []]
    assert batch.column("small").to_pylist() == [None, 255]
    assert batch.column("id").to_pylist() == [1, None]


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        ("struct<tags: list<string>>", '{"tags": ["x", 5]}', "column 'a.tags[1]': 5 is not a valid string"),
        ("list<struct<n: int64>>", '[{}, {"n": "1"}]', "column 'a[1].n': \"1\" is not a valid int64"),
        ("map<string, list<uint8>>", '{"k v": [0, 256]}', "column 'a[\"k v\"][1]': 256 is not a valid uint8"),
        ("struct<d: decimal(4,2)>", '{"d": 1.255}', "column 'a.d': 1.255 is not a valid decimal(4,2)"),
        ("struct<d: decimal(4,2)>", '{"d": 100}', "column 'a.d': 100 is not a valid decimal(4,2)"),
        ("list<decimal(20,3)>", "[1, 5e-39]", "column 'a[1]': 5E-39 is not a valid decimal(20,3)"),
        ("list<float32>", "[1e39]", "column 'a[0]': 1E+39 is not a valid float32"),
        ("list<list<int8>>", "[[1], 2]", "column 'a[1]': 2 is not a valid list<int8>"),
        ("struct<b: binary>", '{"b": {"c": 1}}', "column 'a.b': {\"c\": 1} is not a valid binary"),
        ("struct<b: int64>", "[]", "column 'a': [] is not a valid struct<b: int64>"),
        ("map<string, int64>", "[]", "column 'a': [] is not a valid map<string, int64>"),
    ],
)
def test_a_value_inside_of_another_is_named_by_its_path(type_: str, text: str, message: str) -> None:
    good, bad, last = rows({"a": type_}, b"{}", b'{"a": %s}' % text.encode(), b'{"a": null}')
    assert good == last == {"a": None}
    assert bad == BadBody("schema_mismatch", message)


def test_an_object_or_a_list_in_a_text_column_is_its_json_text() -> None:
    text = rb'{"b" : [1.50e2, 12345678901234567890123, -0, "\u00e9\ud83d"],  "b": {"NaN": null}}'
    columns = {"a": "string", "n": "int64", "s": "struct<t: string, l: list<string>>", "m": "map<string, string>"}
    bodies = [b'{"n": 1, "a": "plain"}']
    bodies += [b'{"n": 2, "a": %s, "s": {"t": [ ], "l": ["x", {"y":1.0}]}, "m": {"k":[1], "j":"v"}}' % text]
    bodies += [b'{"a": [ 1 ] , "n": 3}', b'{"a": 5}', b'{"a": {}, "n": "x"}', b'{"a": [NaN]}', b'{"a": [1}']
    decoder = ObjectDecoder([Field(name, declared_type(text)) for name, text in columns.items()])
    for _ in range(2):  # the second time it knows which text columns have objects in them
        found = decoded(decoder, *bodies)
        assert [row["a"] for row in found[:3]] == ["plain", text.decode(), "[ 1 ]"]
        assert found[1]["s"] == {"t": "[ ]", "l": ["x", '{"y":1.0}']}
        assert found[1]["m"] == [("k", "[1]"), ("j", "v")]
        assert [(bad.reason, bad.message[:29]) for bad in found[3:]] == [
            ("schema_mismatch", "column 'a': 5 is not a valid "),
            ("schema_mismatch", "column 'n': \"x\" is not a vali"),
            ("decode_error", "the payload is not JSON: NaN "),
            ("decode_error", "the payload is not JSON: Expe"),
        ]


def test_text_columns_with_objects_leave_the_others_to_arrow() -> None:
    decoder = ObjectDecoder([Field("a", declared_type("string")), Field("n", declared_type("int64"))])
    bodies = [b'{"a": {"b": %d}, "n": %d}' % (n, n) for n in range(3)]
    list(decoder.rows(bodies))
    batch = decoder._decode_chunk(bodies)
    assert batch is not None
    assert batch.to_pylist() == [{"a": f'{{"b": {n}}}', "n": n} for n in range(3)]


def test_depth_that_nobody_declared_hides_no_value() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    columns = {"u": "struct<name: string, any: string, small: uint8>"}
    body = b'{"u": {"x": %s, "name": "Ann", "any": [%s], "small": 1}, "y": %s}' % (deep, deep, deep)
    assert rows(columns, body) == [{"u": {"name": "Ann", "any": f"[{deep.decode()}]", "small": 1}}]


COLUMNS = {
    "a": "int64",
    "b": "string",
    "c": "date32",
    "d": "decimal(20,3)",
    "e": "float64",
    "f": "float32",
    "g": "timestamp",
    "h": "Timestamp(Millisecond, 'Europe/Oslo')",
    "i": "boolean",
    "j": "struct<a: int64, b: string, c: date32, d: decimal(20,3), e: struct<f: float32>>",
    "k": "list<decimal(20,3)>",
    "l": "list<struct<a: timestamp, e: float64>>",
    "m": "map<string, date32>",
    "n": "list<string>",
}


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = [
    *words(
        "0 -0 0.0 -0.0 1.0 1e2 1E+2 1e-7 1e39 -1e39 1e308 1.8e308 1e400 1e-400 5e-39 5e-42 1.5E-41 0e400 0e3000000000"
    ),
    *words("1e-99999999999999999999 1e99999999999999999999 1.00000005960464477540 123456789012345678901234567890"),
    *words("9223372036854775807 9223372036854775808 1700000000000000000 12345678901234567.891 12345678901234567.8910"),
    *words("true null NaN -NaN Inf -Inf Infinity -Infinity 01 1. .5 +1 - 1e nan nul"),
    "9" * 5000,
    "0." + "0" * 400 + "1",
]
TEXTS = [
    *words("2024-01-01 2024-02-30 20240101 2024-1-1 0000-01-01 0001-01-01 9999-12-31 -2024-01-01 2024-W01-1"),
    *words("2024-01-01T05:00:00 2024-01-01T05:00:00Z 2024-01-01T05:00:00+01:00 2024-01-01T05:00+0130 2024-01-01T05"),
    *words("2024-01-01T24:00:00 2024-01-01T23:59:60 2024-01-01T05:00:00.1 2024-01-01T05:00:00.1234567"),
    *words("2024-01-01T05:00:00,5 0000-12-31T23:00:00-02:00 2024-01-01t05:00:00"),
    *words("1.5 -0 +1.5 .5 1. 1e2 0e300 0e3000000000 1_000 0x1 NaN Infinity -1e-3 1.2340 1.2345 00012"),
    *words(r"A\u0000 \ud83d \ude00 \ud83d\ude00 \ud83dx \x \/ \n NaN,Inf"),
    *("", " ", " 1.5", "2024-01-01 05:00:00", "a\nb", "a\tb", "a\x00b", "\x7f", "ü", "٣", "２０２４-01-01", "}\n{"),
]
NESTED = [
    *words("""[] {} [1,] [NaN] {"a":1,"a":2} ["]"] ["NaN"] [[1]"""),
    "[" * 2000 + "]" * 2000,
    "[" * 2000 + "]" * 1999,
    '{"a":' * 3000 + "1" + "}" * 3000,
    '{"a":' * 3000 + "1," + "}" * 3000,
    "[" * 1500 + r'"\ud83d", 1e400, "]"' + "]" * 1500,
]
VALUES = st.one_of(
    st.sampled_from(NUMBERS),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(TEXTS).map(lambda text: f'"{text}"'),
    st.text(max_size=5).map(json.dumps),
    st.datetimes().map(lambda moment: f'"{moment.isoformat()}"'),
    st.dates().map(lambda day: f'"{day}"'),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.sampled_from(NESTED),
)
INNER_KEYS = st.sampled_from([*"aabcdeef", "x", "\\u0061", "\\ud83d"])
VALUES = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(INNER_KEYS, inner), max_size=3).map(
            lambda members: "{" + ",".join(f'"{key}":{value}' for key, value in members) + "}"
        ),
    ),
    max_leaves=4,
)
KEYS = st.sampled_from([*COLUMNS, "x", "x", "\\u0061", "\\ud83d"])
GAPS = st.sampled_from([""] * 20 + [" ", "\t", "\n", "\r\n", "\x0c", "\u00a0", "\x00"])
AROUND = st.sampled_from(
    [("", "")] * 20 + [("\n", "\r"), ("\x0c", ""), ("\ufeff", ""), ("", "}"), ("", "{}"), ("", "\x00}"), ("[", "]")]
)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Bodies that are mostly objects; few of them are all right."""
    fields = draw(st.lists(st.tuples(GAPS, KEYS, GAPS, VALUES, GAPS), max_size=3))
    before, after = draw(AROUND)
    inside = ",".join(f'{a}"{key}"{b}:{value}{c}' for a, key, b, value, c in fields)
    return f"{before}{{{inside}}}{after}".encode(errors="replace")


def outcomes(found: Iterator[pa.RecordBatch | BadBody]) -> list[str]:
    """A line for each body. Zeros are shown with their sign, times as numbers: those of Python end in 9999."""
    lines = []
    for item in found:
        if isinstance(item, BadBody):
            lines.append(str(item))
            continue
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in item.columns]
        lines += map(str, zip(*(_plain(column).to_pylist() for column in columns), strict=True))
    return lines


def _plain(column: pa.Array) -> pa.Array:
    """A column without times, also inside of nested values."""
    moments = pa.list_(pa.struct([("a", pa.timestamp("us")), ("e", pa.float64())]))
    return (
        column.cast(pa.list_(pa.struct([("a", pa.int64()), ("e", pa.float64())]))) if column.type == moments else column
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(objects(), min_size=1, max_size=3))
def test_chunks_and_single_objects_are_read_alike(bodies: list[bytes]) -> None:
    for columns in (COLUMNS, *({name: type_} for name, type_ in COLUMNS.items())):
        decoder = ObjectDecoder([Field(name, declared_type(text)) for name, text in columns.items()])
        alone = [line for body in bodies for line in outcomes(decoder._decode_each([body]))]
        assert len(alone) == len(bodies)
        assert outcomes(decoder.rows(bodies)) == alone
        assert [line for body in bodies for line in outcomes(decoder.rows([body]))] == alone
