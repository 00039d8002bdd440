"""Pipelines over topics with bad messages: what `on_error` makes of them, while the rows beside them go on."""

from __future__ import annotations

import base64
import json

import pytest

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
    }
)


def connection(kafka: KafkaBroker, registry: SchemaRegistry) -> dict[str, object]:
    return {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": registry.url}


def test_rows_beside_bad_messages_arrive_and_bad_ones_are_skipped_or_kept(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    """One topic read by two sources, another by a third."""
    topic, other = kafka.topic(max_message_bytes=str(10 << 20)), kafka.topic()
    id_ = schema_registry.register(f"{topic}-value", SCHEMA)
    long = "x" * (8 << 20)
    good = [framed(id_, SCHEMA, {"id": n, "text": long if n == 50 else None}) for n in range(100)]
    value = good[0].value or b""
    bad = {
        5: Message(b"\0\0", b"short", (("h", b"\xff"), ("n", None))),
        20: Message(value[:-1], b"cut"),
        40: Message(value + b"!", b"more"),
        60: Message(value, b"unknown", (("dbz.op", b"x"),)),
        80: Message(value, b"nothing", (("dbz.op", None),)),
    }
    messages = list(good)
    for offset, message in bad.items():
        messages.insert(offset, message)
    kafka.produce(topic, messages)
    kafka.produce(other, [json.dumps({"userId": n}) for n in range(10)])
    place.write(f"""\
sources:
  skipping: {{type: kafka, topic: {topic}, on_error: skip, include_metadata: true}}
  keeping: {{type: kafka, topic: {topic}, on_error: dead_letter, dead_letter: {{type: file, path: letters}}}}
  MyUsers: {{type: kafka, topic: {other}, data_format: json, schema: {{userId: int64}}}}
transforms:
  short: {{type: sql, primary_key: id, sql: "SELECT id, length(text) AS size, __kafka_offset AS place FROM skipping"}}
  users: {{type: sql, primary_key: userId, sql: 'SELECT "userId" FROM MyUsers'}}
sinks:
  skipped: {{type: file, from: short, path: skipped, format: json}}
  kept: {{type: file, from: keeping, path: kept, format: parquet}}
  known: {{type: file, from: users, path: known, format: json}}
  plain: {{type: file, from: MyUsers, path: plain, format: json}}
""")
    child = place.start_warm(**connection(kafka, schema_registry))
    owed = {"skipped": 100, "known": 10, "plain": 10}
    child.until(lambda: all(len(place.rows(p, "json")) >= n for p, n in owed.items()), "all rows")
    child.until(lambda: len(place.rows("kept", "parquet")) >= 100, "all rows")
    child.until(lambda: list((place.directory / "letters").glob("*.jsonl")), "letters")
    finished = child.stop().succeeded()
    rows = place.rows("skipped", "json")
    assert [row["id"] for row in rows] == list(range(100))
    assert [row["place"] for row in rows] == [n for n in range(105) if n not in bad]
    assert rows[50]["size"] == 8 << 20
    kept = place.rows("kept", "parquet")
    assert [row["id"] for row in kept] == list(range(100))
    assert kept[50]["text"] == long
    assert sorted(row["userId"] for row in place.rows("known", "json")) == list(range(10))
    letters = [json.loads(line) for f in place.directory.glob("letters/*.jsonl") for line in f.open()]
    assert [letter["source"]["offset"] for letter in letters] == list(bad)
    for letter, (offset, message) in zip(letters, bad.items(), strict=True):
        assert letter["source"] == {"node": "keeping", "topic": topic, "partition": 0, "offset": offset}
        assert base64.b64decode(letter["raw"]) == message.value
        assert base64.b64decode(letter["raw_key"]) == message.key
        headers = [[name, value and base64.b64encode(value).decode()] for name, value in message.headers]
        assert (letter["headers"] or []) == headers
        assert letter["stage"] == "decode"
    assert [letter["reason_code"] for letter in letters] == ["decode_error"] * 3 + ["unknown_operation"] * 2
    assert "5 rows became dead letters" in finished.stderr
    assert "node 'skipping' skipped 1 row (decode_error)" in finished.stderr
    offsets = {key: value["offset"] for key, value in place.state().items() if ":" in key}
    assert offsets == {f"skipping:{topic}:0": 105, f"keeping:{topic}:0": 105, f"myusers:{other}:0": 10}


def test_a_bad_message_ends_the_run_and_is_named(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic(partitions=2)
    id_ = schema_registry.register(f"{topic}-value", SCHEMA)
    good = framed(id_, SCHEMA, {"id": 1, "text": None}).value
    bad = Message(good, headers=(("dbz.op", b"x"),), partition=1)
    kafka.produce(topic, [Message(good, partition=1), bad])
    place.write(f"""\
sources: {{orders: {{type: kafka, topic: {topic}}}}}
sinks: {{out: {{type: file, from: orders, path: out, format: json}}}}
""")
    finished = place.run(**connection(kafka, schema_registry)).failed()
    assert f"source 'orders': topic '{topic}', partition 1, offset 1: the header dbz.op is 'x'" in finished.stderr
    # On executors the same.
    finished = place.run(EPOCH__DRIVER_ROWS=0, **connection(kafka, schema_registry)).failed()
    assert f"topic '{topic}', partition 1, offset 1: the header dbz.op is 'x'" in finished.stderr
    assert place.rows("out", "json") == []
