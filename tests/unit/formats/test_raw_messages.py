"""Payloads as they are."""

from __future__ import annotations

import pyarrow as pa

from streamling.formats.bodies import BadBody
from streamling.formats.raw_messages import RawDecoder
from streamling.plan.types import BINARY, STRING, Field


def test_text_must_be_utf8_and_bytes_may_be_anything() -> None:
    bodies = [b'{"a": 1}', b"\xff", "\u00e9\n".encode(), b"\x00"]
    first, bad, rest = RawDecoder(Field("value", STRING)).rows(bodies)
    assert isinstance(first, pa.RecordBatch) and isinstance(rest, pa.RecordBatch)
    assert first.to_pylist() == [{"value": '{"a": 1}'}]
    assert rest.to_pylist() == [{"value": "\u00e9\n"}, {"value": "\x00"}]
    assert bad == BadBody("decode_error", "the payload is not UTF-8: invalid start byte at byte 0")
    (whole,) = RawDecoder(Field("body", BINARY)).rows(bodies)
    assert isinstance(whole, pa.RecordBatch)
    assert whole.column("body").to_pylist() == bodies
