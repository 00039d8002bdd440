"""Bodies are looked at one by one with the same result as if the reader of many were asked about each."""

from __future__ import annotations

import json

import pytest
from avro_samples import KINDS, Kind, body, decoder, field, nullable, record, records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.formats.avro import byteless, expanded
from streamling.formats.avro_blocks import Undecodable, number
from streamling.formats.avro_faults import fault_finder
from streamling.formats.avro_messages import BodyDecoder
from streamling.formats.avro_values import readable


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    at = draw(st.integers(0, len(good)))
    removed, put = draw(st.sampled_from([(0, 1), (1, 0), (1, 1), (0, 12), (len(good), 0), (len(good), 40)]))
    return good[:at] + draw(st.binary(max_size=put)) + good[at + removed :]


def refused(decoder: BodyDecoder, body: bytes) -> str | None:
    try:
        decoder._decoded([body])
    except Undecodable as error:
        return str(error)
    return None


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records(KINDS), st.booleans(), st.data())
def test_the_reader_finds_the_same_faults(kind: Kind, root_is_union: bool, data: st.DataObject) -> None:
    schema, values = nullable(kind) if root_is_union and not byteless(kind[0]) else kind
    decode, fault = decoder(schema), fault_finder(readable(expanded(json.dumps(schema))))
    good = body(schema, data.draw(values)[0])
    assert fault(good) is None
    for _ in range(4):
        bad = data.draw(damaged(good))
        assert (fault(bad) is None) == (refused(decode, bad) is None)


INNER = record(
    field("b", {"type": "array", "items": "string"}), field("c", {"type": "map", "values": "int"}), name="In"
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "'a' ends early"),
        (number(1 << 31), "'a' is a number of more than 32 bits"),
        (b"\xff" * 9 + b"\x02", "'a' is a number of more than 64 bits"),
        (number(1) + number(1) + number(2) + b"x", "'in.b' ends early"),
        (number(1) + number(1) + number(1) + b"\xff", "'in.b[]' is not UTF-8"),
        (number(1) + number(1) + number(-1), "'in.b[]' has -1 bytes"),
        (number(1) + number(1 << 62), "'in.b' ends early"),
        (number(1) + number(0) + number(1) + number(1) + b"\xff", "'in.c{}' is not UTF-8"),
        (number(1) + number(0) + number(0), None),
        (number(1) + number(0) + number(0) + b"xy", "it should end after 3 bytes, and has 5"),
    ],
)
def test_a_fault_names_the_field(content: bytes, expected: str | None) -> None:
    schema = record(field("a", "int"), field("in", INNER))
    assert fault_finder(readable(expanded(json.dumps(schema))))(content) == expected
