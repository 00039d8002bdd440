"""Messages that are no rows: each is bad in its place, with all there is to know of it, and its neighbours are rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamling.connector import BadRow
from streamling.dev.topics import Message
from streamling.errors import INVALID_VALUE, SCHEMA_NOT_FOUND, SCHEMA_OUTDATED, SCHEMA_UNUSABLE, StreamlingError
from support.avro_frames import framed
from support.kafka_broker import KafkaBroker
from support.kafka_source_samples import everything, source
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ID = {"name": "id", "type": "long"}
TEXT = {"name": "text", "type": "string"}
PLAIN = json.dumps(record(ID, TEXT))


def damaged(message: Message, change: Any) -> Message:
    assert message.value is not None
    return Message(change(message.value), b"key", (("h", b"x"), ("none", None)))


DAMAGES: dict[str, Any] = {
    "trailing bytes": lambda value: value + b"\0\0",
    "truncated": lambda value: value[:-3],
    "no body": lambda value: value[:5],
    "short frame": lambda value: value[:4],
    "other magic byte": lambda value: b"\1" + value[1:],
    "another body": lambda value: value[:5] + b"\xff" * 20,
}


def test_a_damaged_message_is_bad_wherever_it_stands(
    kafka: KafkaBroker, schema_registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamling.sources.kafka.reader._CHUNK_ROWS", 5)
    topic = kafka.topic()
    id_ = schema_registry.register(f"{topic}-value", PLAIN)
    good = [framed(id_, PLAIN, {"id": n, "text": f"text {n}"}) for n in range(15)]
    messages: list[Message | bytes | str | None] = []
    bad: dict[int, bytes | None] = {}
    for change in DAMAGES.values():
        for place in (0, 7, 14):  # the first, middle and last of their chunks
            bad[len(messages) + place] = damaged(good[place], change).value
            messages += [damaged(m, change) if n == place else m for n, m in enumerate(good)]
    kafka.produce(topic, messages)
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        rows = everything(events)
    found = {n: row for n, row in enumerate(rows) if isinstance(row, BadRow)}
    assert list(found) == list(bad)
    for n, row in found.items():
        assert row.source == {"topic": topic, "partition": 0, "offset": n}
        assert (row.raw, row.raw_key, row.headers) == (bad[n], b"key", (("h", b"x"), ("none", None)))
        assert row.reason == "decode_error"
    assert all(row["id"] == n % 15 for n, row in enumerate(rows) if not isinstance(row, BadRow))


def test_operations_that_are_none_are_bad(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    id_ = schema_registry.register(f"{topic}-value", PLAIN)
    value = framed(id_, PLAIN, {"id": 1, "text": ""}).value
    operations = [b"c", b"x", None, b"\xff", b"", b"C", b"u"]
    kafka.produce(topic, [Message(value, headers=(("dbz.op", op),)) for op in operations])
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        rows = everything(events)
    bad = {n: row.message for n, row in enumerate(rows) if isinstance(row, BadRow)}
    assert {n: text.partition(";")[0] for n, text in bad.items()} == {
        1: "the header dbz.op is 'x'",
        2: "the header dbz.op is null",
        3: "the header dbz.op is '\\\\xff'",
        4: "the header dbz.op is ''",
        5: "the header dbz.op is 'C'",
    }


def test_three_schemas_alternate_within_an_epoch(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic(partitions=2)
    schemas = [
        json.dumps(record({"name": "id", "type": "int"})),
        PLAIN.replace('"string"', '"string", "default": "none"'),
        json.dumps(record(ID, {"name": "text", "type": ["null", "string"], "default": None}, name="Other")),
    ]
    schema_registry.compatibility(f"{topic}-value", "NONE")  # another name of the record is enough to be refused
    ids = [schema_registry.register(f"{topic}-value", schema) for schema in schemas]
    messages = []
    for n in range(30):
        row: dict[str, Any] = {"id": n} if n % 3 == 0 else {"id": n, "text": None if n % 3 == 2 else str(n)}
        found = framed(ids[n % 3], schemas[n % 3], row)
        messages.append(Message(found.value, partition=n % 2))
    kafka.produce(topic, messages)
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        rows: list[Any] = everything(events)
    assert [row["id"] for row in rows] == [*range(0, 30, 2), *range(1, 30, 2)]
    assert all(row["text"] == (str(row["id"]) if row["id"] % 3 == 1 else None) for row in rows)


def test_a_root_of_null_and_a_record_is_that_record(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    root = json.dumps(["null", record(ID, TEXT)])
    id_ = schema_registry.register(f"{topic}-value", root)
    kafka.produce(topic, [framed(id_, root, row) for row in ({"id": 1, "text": "a"}, None, {"id": 2, "text": "b"})])
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        first, bad, last = everything(events)
    assert (first, last) == ({"id": 1, "text": "a", "_gs_op": "i"}, {"id": 2, "text": "b", "_gs_op": "i"})
    assert isinstance(bad, BadRow)
    assert (bad.reason, bad.source["offset"]) == ("schema_mismatch", 1)


@pytest.mark.parametrize("root", [["null", "string"], "string", [record(ID), record(TEXT, name="S")]])
def test_a_root_without_a_record_has_no_columns(root: Any, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    schema_registry.register(f"{topic}-value", json.dumps(root))
    with pytest.raises(StreamlingError) as caught:
        with source(kafka.brokers, topic, registry_url=schema_registry.url):
            pass
    assert caught.value.condition is SCHEMA_UNUSABLE
    assert "must be a record, or a union of null and one record" in caught.value.message


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_schemas_that_cannot_be_had_end_the_run_and_name_the_message(
    policy: str, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    """Not faults of a row: a registry that was emptied must not make a topic of skipped rows."""
    topic = kafka.topic(partitions=4)
    id_ = schema_registry.register(f"{topic}-value", PLAIN)
    stranger = schema_registry.register(f"other-{topic}-value", json.dumps(record(ID)))
    odd = schema_registry.register(f"odd-{topic}-value", json.dumps([record(ID), record(TEXT, name="S")]))
    good = framed(id_, PLAIN, {"id": 1, "text": ""})
    for number, (bad, condition, words) in enumerate(
        [
            (987654, SCHEMA_NOT_FOUND, "answers 404 to /schemas/ids/987654"),
            (stranger, SCHEMA_OUTDATED, f"the schema id {stranger}, which is not a version of"),
            (odd, SCHEMA_UNUSABLE, "must be a record"),
        ]
    ):
        message = framed(bad, PLAIN, {"id": 2, "text": ""})
        kafka.produce(topic, [Message(m.value, partition=number) for m in (good, message)])
        others = {f"events:{topic}:{n}": {"offset": 2 if n < number else 0} for n in range(4) if n != number}
        lax = ", validate_writer_schema_ordering: false" if condition is SCHEMA_UNUSABLE else ""
        with source(
            kafka.brokers, topic, f", on_error: {policy}{lax}", others, registry_url=schema_registry.url
        ) as events:
            with pytest.raises(StreamlingError) as caught:
                everything(events)
        assert caught.value.condition is condition
        assert f"topic '{topic}', partition {number}, offset 1: " in caught.value.message
        assert words in caught.value.message


def test_a_message_of_eight_megabytes_is_a_row(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic(max_message_bytes=str(10 << 20))
    id_ = schema_registry.register(f"{topic}-value", PLAIN)
    long = "x" * (8 << 20)
    texts = ["a", long, "b", long, long, "c"]
    kafka.produce(topic, [framed(id_, PLAIN, {"id": n, "text": text}) for n, text in enumerate(texts)])
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        rows: list[Any] = everything(events)
    assert [row["id"] for row in rows] == list(range(6))
    assert all(row["text"] == text for row, text in zip(rows, texts, strict=True))


def test_a_record_without_fields_is_a_row_without_columns(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    empty = json.dumps(record())
    id_ = schema_registry.register(f"{topic}-value", empty)
    frame = framed(id_, empty, {}, "u").value
    kafka.produce(topic, [framed(id_, empty, {}, "u"), Message((frame or b"") + b"x"), framed(id_, empty, {})])
    for more in ("", ", include_metadata: true"):
        with source(kafka.brokers, topic, more, registry_url=schema_registry.url) as events:
            first, bad, last = everything(events)
        assert isinstance(first, dict)
        assert isinstance(last, dict)
        assert (first["_gs_op"], last["_gs_op"]) == ("u", "i")
        assert isinstance(bad, BadRow)
    assert last["__kafka_offset"] == 2


def test_a_field_that_is_called_like_a_metadata_column_is_one_of_them(
    kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic()
    named = json.dumps(record(ID, {"name": "__kafka_offset", "type": "string"}))
    id_ = schema_registry.register(f"{topic}-value", named)
    kafka.produce(topic, [framed(id_, named, {"id": 1, "__kafka_offset": "own"})])
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        assert everything(events) == [{"id": 1, "__kafka_offset": "own", "_gs_op": "i"}]
    with pytest.raises(StreamlingError) as caught:
        with source(kafka.brokers, topic, ", include_metadata: true", registry_url=schema_registry.url):
            pass
    assert caught.value.condition is INVALID_VALUE
    assert "adds the column '__kafka_offset', which the schema of the topic has too" in caught.value.message
