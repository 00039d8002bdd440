"""Rows become messages with key, headers and payload; payloads are shown in their own format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamling.dev.messages import Payload, PayloadReader, Recipe, messages
from streamling.dev.row_codec import RowCodec
from streamling.dev.topics import Message
from streamling.errors import DATA_ERROR, SCHEMA_UNUSABLE, StreamlingError


def record(**fields: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "Row", "fields": [{"name": name, "type": type_} for name, type_ in fields.items()]}
    )


def around(schema: str, row: str) -> str:
    """A row, encoded and decoded."""
    recipe = Recipe(avro=RowCodec(schema), schema_id=7)
    value = recipe.message(row).value
    assert value is not None
    assert value[:5] == b"\0\0\0\0\7"
    return RowCodec(schema).decode(value[5:])


def test_a_line_is_the_payload_as_it_was_written() -> None:
    assert Recipe().message('{"a": 1.50}') == Message(b'{"a": 1.50}')


@pytest.mark.parametrize(
    ("columns", "key"),
    [(("id",), b"7"), (("name",), b"Ann"), (("id", "name"), b"7:Ann"), (("none",), None), ((), None)],
)
def test_a_key_is_the_text_of_its_columns(columns: tuple[str, ...], key: bytes | None) -> None:
    assert Recipe(columns).message('{"id": 7, "name": "Ann", "none": null}').key == key


@pytest.mark.parametrize(("operation", "header"), [("i", b"c"), ("u", b"u"), ("d", b"d"), ("r", b"r"), ("x", b"x")])
def test_an_operation_goes_into_the_header_and_leaves_the_row(operation: str, header: bytes) -> None:
    recipe = Recipe(headers=(("a", b"1"),), operation="_gs_op")
    assert recipe.message(f'{{"id": 1, "_gs_op": "{operation}"}}') == Message(
        b'{"id":1}', None, (("a", b"1"), ("dbz.op", header))
    )


def test_a_row_without_operation_has_no_such_header() -> None:
    assert Recipe(operation="_gs_op").message('{"id": 1}') == Message(b'{"id": 1}')


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not valid JSON: "),
        (b"\xff", "utf-8"),
        (b'{"name": "Ann"}', "the key column 'id' is missing"),
    ],
)
def test_a_line_that_cannot_be_sent_is_named_by_its_number(line: bytes, reason: str) -> None:
    lines = [b'{"id": 1}\n', b"\n", line]
    with pytest.raises(StreamlingError, match=f"line 3 of rows.jsonl.*{reason}") as caught:
        list(messages(lines, Recipe(key=("id",)), "rows.jsonl"))
    assert caught.value.condition is DATA_ERROR


@pytest.mark.parametrize(
    ("type_", "given", "shown"),
    [
        ("long", "9007199254740993", "9007199254740993"),
        ("double", "1", "1.0"),
        ("bytes", '"00ff"', '"00ff"'),
        (["null", "string"], "null", "null"),
        (["null", "string"], '"x"', '"x"'),
        (["null", {"type": "long", "logicalType": "timestamp-millis"}], '"2024-05-01T10:00:00.5Z"', None),
        ({"type": "long", "logicalType": "timestamp-micros"}, "1", '"1970-01-01T00:00:00.000001Z"'),
        ({"type": "int", "logicalType": "date"}, '"2024-05-01"', '"2024-05-01"'),
        ({"type": "int", "logicalType": "time-millis"}, '"10:00:01"', '"10:00:01"'),
        ({"type": "long", "logicalType": "timestamp-nanos"}, '"1970-01-01T00:00:01Z"', "1000000000"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 18}, "12.345678901234567890", None),
        ({"type": "fixed", "name": "F", "size": 2}, '"0a0b"', '"0a0b"'),
        ({"type": "array", "items": "bytes"}, '["01"]', '["01"]'),
        ({"type": "map", "values": "float"}, '{"a":0.5}', '{"a":0.5}'),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, '"A"', '"A"'),
        ({"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}, '{"b":"ff"}', '{"b":"ff"}'),
    ],
)
def test_avro_values_are_read_as_people_write_them(type_: Any, given: str, shown: str | None) -> None:
    found = around(record(a=type_), f'{{"a": {given}}}')
    if shown is None:
        assert given.strip('"Z') in found
    else:
        assert found == f'{{"a":{shown}}}'


@pytest.mark.parametrize(
    ("type_", "value"),
    [("long", '"1"'), ("int", "3000000000"), ("string", "1"), ("bytes", '"no hex"'), ("long", "null")],
)
def test_a_value_that_does_not_match_the_schema_is_rejected(type_: str, value: str) -> None:
    with pytest.raises(ValueError):
        around(record(a=type_), f'{{"a": {value}}}')


def test_an_invalid_schema_is_a_user_error() -> None:
    with pytest.raises(StreamlingError) as caught:
        RowCodec('{"type": "record"}')
    assert caught.value.condition is SCHEMA_UNUSABLE


def test_a_schema_may_build_on_others() -> None:
    codec = RowCodec(record(a="acme.Place"), [record(x="long").replace('"Row"', '"acme.Place"')])
    assert codec.decode(codec.encode({"a": {"x": 1}})) == '{"a":{"x":1}}'


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (None, Payload("none")),
        (b'{"a": 1}', Payload("json", '{"a": 1}')),
        (b"hello\nworld", Payload("text", "hello\nworld")),
        (b"\xff\x00", Payload("binary", "ff00")),
        (b"\0\0\0\0\7\2", Payload("binary", "000000000702")),
        (b"\x1b[2J", Payload("binary", "1b5b324a")),
        (b"", Payload("text", "")),
    ],
)
def test_a_payload_is_shown_as_what_it_is(value: bytes | None, payload: Payload) -> None:
    assert PayloadReader(None).payload(value) == payload
