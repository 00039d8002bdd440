"""JSON bodies become rows of declared columns; one that cannot be read is bad alone."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.formats.bodies import BadBody
from streamling.formats.json_messages import ObjectDecoder
from streamling.plan.declared import declared_type
from streamling.plan.types import Field


def rows(columns: dict[str, str], *bodies: bytes) -> list[Any]:
    found: list[Any] = []
    decoder = ObjectDecoder([Field(name, declared_type(text)) for name, text in columns.items()])
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
    ],
)
def test_a_value_that_does_not_fit_names_the_column(type_: str, text: str) -> None:
    bad = value(type_, text)
    assert isinstance(bad, BadBody)
    assert bad.reason == "schema_mismatch"
    assert bad.message.startswith("column 'a': ")


@pytest.mark.parametrize(
    "body", [b"\xff", b"[1]", b"1", b"null", b"{", b'{"a": 1}{"a": 2}', b'{"a": NaN}', b'{"b":{"a": 1}', b'{"a":']
)
def test_a_body_that_is_no_object_is_bad_alone(body: bytes) -> None:
    found = rows({"a": "int64"}, b'{"a": 1}', body, b'{"a": 3}')
    assert [found[0], found[2]] == [{"a": 1}, {"a": 3}]
    assert found[1].reason == "decode_error"


def test_halves_of_objects_do_not_make_whole_ones() -> None:
    found = rows({"a": "int64"}, b'{"b":', b'{"a": 1}}', b'{"a": 1}{"a": 2}')
    assert [type(row) for row in found] == [BadBody, BadBody, BadBody]


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=5), st.just("2020-01-01"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), SCALARS), max_size=4))
def test_chunks_and_single_objects_are_read_alike(objects: list[dict[str, Any]]) -> None:
    columns = {"a": "int64", "b": "string", "c": "date32", "d": "decimal(20,3)"}
    bodies = [json.dumps(o).encode() for o in objects]
    decoder = ObjectDecoder([Field(name, declared_type(text)) for name, text in columns.items()])
    batch = decoder._at_once(bodies) if bodies else None
    if batch is not None:
        single = [row for item in decoder._one_by_one(bodies) for row in item.to_pylist()]
        assert batch.to_pylist() == single
