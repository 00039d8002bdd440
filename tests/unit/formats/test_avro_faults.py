"""Bad bodies are found one by one, with the judgement of the reader that decodes many at once."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.formats.avro import expand_schema, is_byteless
from streamling.formats.avro_blocks import Undecodable, encode_long
from streamling.formats.avro_faults import fault_finder
from streamling.formats.avro_messages import BodyDecoder
from streamling.formats.avro_values import decoding_schema
from streamling.formats.bodies import BadBody
from support.avro_samples import KINDS, Kind, body, decoder, field, nullable, record, records, rows


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    at = draw(st.integers(0, len(good)))
    removed, put = draw(st.sampled_from([(0, 1), (1, 0), (1, 1), (0, 12), (len(good), 0), (len(good), 40)]))
    return good[:at] + draw(st.binary(max_size=put)) + good[at + removed :]


def refused(decoder: BodyDecoder, body: bytes) -> str | None:
    try:
        decoder._decode([body])
    except Undecodable as error:
        return str(error)
    return None


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records(KINDS), st.booleans(), st.data())
def test_what_the_reader_accepts_has_no_fault(kind: Kind, root_is_union: bool, data: st.DataObject) -> None:
    schema, values = nullable(kind) if root_is_union and not is_byteless(kind[0]) else kind
    decode, fault = decoder(schema), finder(schema)
    good = body(schema, data.draw(values)[0])
    assert fault(good) is None
    for _ in range(4):
        bad = data.draw(damaged(good))
        if refused(decode, bad) is None:
            assert fault(bad) is None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records(KINDS), st.data())
def test_a_body_is_bad_among_others_if_it_is_bad_alone(kind: Kind, data: st.DataObject) -> None:
    schema, values = kind
    decode = decoder(schema)
    bodies = [body(schema, data.draw(values)[0]) for _ in range(3)]
    bodies[1:1] = [data.draw(damaged(bodies[0])) for _ in range(2)]
    together = [isinstance(row, BadBody) for row in rows(decode, bodies)]
    assert together == [isinstance(rows(decode, [one])[0], BadBody) for one in bodies]


def finder(schema: Any) -> Callable[[bytes], str | None]:
    return fault_finder(decoding_schema(expand_schema(json.dumps(schema))))


INNER = record(
    field("b", {"type": "array", "items": "string"}), field("c", {"type": "map", "values": "int"}), name="In"
)
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
STATE = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
ENDS_EARLY = "ends early: expected"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "'a' ends early"),
        (encode_long(1 << 31), "'a' is a number of more than 32 bits"),
        (encode_long(1) + encode_long(1) + encode_long(2) + b"x", f"'in.b' {ENDS_EARLY} 2 bytes, read 1"),
        (encode_long(1) + encode_long(1) + encode_long(1) + b"\xff", "'in.b' is not UTF-8"),
        (encode_long(1) + encode_long(1) + encode_long(-1), f"'in.b' {ENDS_EARLY} -1 bytes, read 0"),
        (encode_long(1) + encode_long(0) + encode_long(1) + encode_long(1) + b"\xff", "'in.c' is not UTF-8"),
        (encode_long(1) + encode_long(0) + encode_long(0), None),
        (encode_long(1) + encode_long(0) + encode_long(0) + b"xy", "it should end after 3 bytes, and has 5"),
    ],
)
def test_a_fault_names_the_column(content: bytes, expected: str | None) -> None:
    assert finder(record(field("a", "int"), field("in", INNER)))(content) == expected


@pytest.mark.parametrize(
    ("type_", "content", "expected"),
    [
        (STATE, encode_long(2), "'a' is symbol 2 of an enum of 2"),
        (STATE, encode_long(-1), "'a' is symbol -1 of an enum of 2"),
        (MONEY, encode_long(17) + b"\x01" * 17, "'a' is a decimal of more than 128 bits"),
        (MONEY, encode_long(17) + b"\xff" * 17, None),
        (["null", "int", "string"], encode_long(3), "'a' is branch 3 of a union of 3"),
        (["null", "int", "string"], encode_long(-1) + encode_long(0), "'a' is branch -1 of a union of 3"),
        (["null", "int"], encode_long(7) + encode_long(5), None),
        (["null", "int"], encode_long(-2) + encode_long(5), None),
        (["int", "null"], encode_long(-2), None),
    ],
)
def test_the_rules_are_those_of_the_reader(type_: Any, content: bytes, expected: str | None) -> None:
    schema = record(field("a", type_))
    assert finder(schema)(content) == expected
    assert (refused(decoder(schema), content) is None) == (expected is None)


@pytest.mark.parametrize(
    ("type_", "content"),
    [
        ("long", b"\xff" * 9 + b"\x02"),
        ({"type": "array", "items": "int"}, encode_long(-1) + encode_long(-5) + encode_long(0) + encode_long(0)),
    ],
)
def test_what_only_the_reader_rejects_is_found_by_halving(type_: Any, content: bytes) -> None:
    schema = record(field("a", type_))
    assert finder(schema)(content) is None
    good = body(schema, {"a": 5 if type_ == "long" else [5]})
    found = rows(decoder(schema), [good, good, content, good])
    assert [isinstance(row, BadBody) for row in found] == [False, False, True, False]
    assert found[2].reason == "decode_error"


@pytest.mark.parametrize("size", [1 << 40, 1 << 62, -(1 << 40), -(1 << 63)])
@pytest.mark.parametrize(
    "type_", ["string", "bytes", {"type": "array", "items": "int"}, {"type": "map", "values": "string"}]
)
def test_a_length_beyond_the_body_costs_neither_memory_nor_time(type_: Any, size: int) -> None:
    schema = record(field("a", type_))
    content = encode_long(size) + b"\0\0\0"
    find = finder(schema)
    find(content)
    tracemalloc.start()
    began = time.monotonic()
    find(content)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
    assert time.monotonic() - began < 1
    (found,) = rows(decoder(schema), [content])
    assert isinstance(found, BadBody)
    assert found.reason == "decode_error"
