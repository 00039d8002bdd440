"""Envelopes of Debezium become the rows inside of them, with their operation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamling.errors import UserError
from streamling.formats.avro import expand_schema, rows_of
from streamling.formats.avro_messages import BodyDecoder
from streamling.formats.bodies import BadBody, Decoder
from streamling.formats.envelope import envelope_fields, envelope_record, envelope_rows
from streamling.formats.envelope_messages import EnvelopeDecoder
from streamling.formats.json_messages import ObjectDecoder
from streamling.plan.types import Field
from streamling.plan.written_types import declared_type
from support.avro_frames import framed

COLUMNS = [Field("id", declared_type("int64")), Field("tags", declared_type("list<string>"))]


def decoded(decoder: Decoder, *bodies: bytes) -> list[Any]:
    found: list[Any] = []
    for item in decoder.rows(bodies):
        found.extend([item] if isinstance(item, BadBody) else item.to_pylist())
    return found


def envelope(op: Any, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"table": "orders"}, "ts_ms": 1}


def changes(*envelopes: Any) -> list[Any]:
    return decoded(
        EnvelopeDecoder(ObjectDecoder(envelope_fields(COLUMNS))), *(json.dumps(e).encode() for e in envelopes)
    )


def row(id_: int | None, tags: list[str] | None, operation: str) -> dict[str, Any]:
    return {"id": id_, "tags": tags, "_gs_op": operation}


@pytest.mark.parametrize("wrapped", [False, True])
def test_operations_choose_the_row_before_or_after(wrapped: bool) -> None:
    envelopes = [
        envelope("c", None, {"id": 1, "tags": ["a"], "more": 1}),
        envelope("r", None, {"id": 2, "tags": None}),
        envelope("u", {"id": 2, "tags": ["old"]}, {"id": 2, "tags": ["new", "er"]}),
        envelope("d", {"id": 1}),
    ]
    found = changes(*({"schema": {"type": "struct"}, "payload": e} if wrapped else e for e in envelopes))
    assert found == [row(1, ["a"], "i"), row(2, None, "i"), row(2, ["new", "er"], "u"), row(1, None, "d")]
    assert changes(*envelopes[:2]) == found[:2]
    assert changes(envelopes[3]) == found[3:]


def test_both_forms_may_alternate() -> None:
    one, two = envelope("c", None, {"id": 1}), envelope("d", {"id": 2})
    found = changes({"schema": {}, "payload": two}, one, two, {"schema": {}, "payload": one})
    assert [(r["id"], r["_gs_op"]) for r in found] == [(2, "d"), (1, "i"), (2, "d"), (1, "i")]


@pytest.mark.parametrize(
    ("bad", "reason", "message"),
    [
        (envelope("t"), "unknown_operation", "the operation of the envelope is 't' (truncate), which is no change of"),
        (envelope("x"), "unknown_operation", "the operation of the envelope is 'x'; it must be c, r, u or d"),
        (envelope("d", None, {"id": 1}), "decode_error", "the operation of the envelope is 'd', but 'before' is null"),
        (envelope("u", {"id": 1}), "decode_error", "the operation of the envelope is 'u', but 'after' is null"),
        ({"id": 1}, "decode_error", "the payload is not an envelope of Debezium: it has no 'op'"),
        ({"schema": None, "payload": None}, "decode_error", "the payload is not an envelope of Debezium"),
        (envelope("c", None, {"id": "1"}), "schema_mismatch", "column 'after.id': \"1\" is not a valid int64"),
        ({"payload": envelope("d", {"tags": [1]})}, "schema_mismatch", "column 'payload.before.tags[0]': 1 is not"),
        (envelope("c", None, "{}"), "schema_mismatch", "column 'after': \"{}\" is not a valid struct<id: int64"),
    ],
)
def test_an_envelope_without_a_row_is_bad_alone(bad: Any, reason: str, message: str) -> None:
    good = envelope("c", None, {"id": 1})
    first, found, last = changes(good, bad, good)
    assert first == last == row(1, None, "i")
    assert found.reason == reason
    assert found.message.startswith(message)


VALUE: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
ENVELOPE: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}


OTHER_AFTER = {"name": "after", "type": ["null", {**VALUE, "name": "Other", "fields": VALUE["fields"][:1]}]}


def test_avro_envelopes_are_read_likewise() -> None:
    schema = json.dumps(ENVELOPE)
    assert [(f.name, str(f.type), f.nullable) for f in envelope_rows(rows_of(schema)).schema] == [
        ("id", "int64", False),
        ("name", "string", True),
        ("_gs_op", "string", False),
    ]
    expanded = expand_schema(schema)
    decoder = EnvelopeDecoder(BodyDecoder(expanded, envelope_record(expanded)))
    envelopes = [
        envelope("c", None, {"id": 1, "name": "Ann"}),
        envelope("t"),
        envelope("d", {"id": 1, "name": None}, None),
    ]
    found = decoded(decoder, *(framed(1, schema, {**e, "source": {"lsn": 7}}).value[5:] for e in envelopes))
    assert [found[0], found[2]] == [{"id": 1, "name": "Ann", "_gs_op": "i"}, {"id": 1, "name": None, "_gs_op": "d"}]
    assert found[1].reason == "unknown_operation"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([{"name": "id", "type": "long"}], "it must have the records 'before' and 'after', and 'op' as text"),
        ([*ENVELOPE["fields"][:3], {"name": "op", "type": "int"}], "and 'op' as text"),
        ([ENVELOPE["fields"][0], OTHER_AFTER, ENVELOPE["fields"][3]], "'before' and 'after' have different types"),
    ],
)
def test_an_avro_schema_that_is_no_envelope_says_so(fields: Any, why: str) -> None:
    with pytest.raises(UserError) as refused:
        envelope_rows(rows_of(json.dumps({**ENVELOPE, "fields": fields})))
    assert "is not an envelope of Debezium" in refused.value.message and why in refused.value.message
