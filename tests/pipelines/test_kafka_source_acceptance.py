"""Pipelines that read topics of a real broker, from the file to what the sinks hold."""

from __future__ import annotations

import json

import pytest

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.harness import Workspace, printed
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "doc": '{"primaryKeys": ["id"]}',
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "text", "type": ["null", "string"]},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)


def test_json_payloads_are_decoded_by_a_declared_schema(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    rows = [
        {"id": 1, "name": "alpha", "amount": 10.5, "active": True},
        {"id": 2, "name": "beta", "amount": 20.0, "active": False},
        {"id": 3, "name": "gamma", "amount": 30.25, "active": True},
    ]
    kafka.produce(topic, [json.dumps(row) for row in rows])
    place.write(f"""\
sources:
  events:
    type: kafka
    topic: {topic}
    data_format: json
    schema: {{id: int64, name: string, amount: float64, active: boolean}}
sinks:
  out: {{type: print, from: events, sample_every: 1}}
""")
    finished = place.run(KAFKA_SOURCE__BROKERS=kafka.brokers, NUM_RECORDS_BEFORE_STOP=3).succeeded()
    lines = printed(finished.stdout)
    assert [(operation, row) for _, _, operation, row in lines] == [
        ("Insert", {**dict(sorted(row.items())), "_gs_op": "i"}) for row in rows
    ]


def test_avro_rows_pass_filter_sql_and_sink_and_bad_ones_become_letters(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic(partitions=2)
    id_ = schema_registry.register(f"{topic}-value", ORDER)
    messages: list[Message | bytes | str | None] = []
    for n in range(100):
        row = {"id": n, "text": None if n % 3 else f"t{n}", "amount": n.to_bytes(8), "tags": [str(n)] * (n % 3)}
        plain = ORDER.replace('"logicalType": "decimal", ', "")
        messages.append(framed(id_, plain, row, "u" if n % 2 else "c", str(n).encode()))
    kafka.produce(topic, [*messages, Message(b"oops", b"key")])
    place.write(f"""\
sources:
  orders:
    type: kafka
    topic: {topic}
    filter: id >= 10
    include_metadata: true
    on_error: dead_letter
    dead_letter: {{type: file, path: letters}}
transforms:
  chosen:
    type: sql
    primary_key: id
    sql: "SELECT id, coalesce(text, 'none') AS text, amount, tags, __kafka_offset AS place FROM orders WHERE id < 90"
sinks:
  out: {{type: file, from: chosen, path: out, format: json}}
""")
    child = place.start_warm(KAFKA_SOURCE__BROKERS=kafka.brokers, KAFKA_SOURCE__SCHEMA_REGISTRY_URL=schema_registry.url)
    child.until(lambda: len(place.rows("out", "json")) >= 80, "80 rows")
    child.until(lambda: list((place.directory / "letters").glob("*.jsonl")), "a letter")
    child.stop().succeeded()
    found = sorted(place.rows("out", "json"), key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(10, 90))
    assert found[2]["text"] == "t12"
    assert (found[3]["text"], found[3]["amount"], found[3]["_gs_op"]) == ("none", 0.13, "u")
    assert found[4]["tags"] == ["14", "14"]
    (file,) = (place.directory / "letters").glob("*.jsonl")
    letter = json.loads(file.read_text())
    assert letter["source"]["topic"] == topic
    assert (letter["reason_code"], letter["stage"]) == ("decode_error", "decode")
    offsets = {key: value["offset"] for key, value in place.state().items() if key.startswith("orders:")}
    assert sum(offsets.values()) == 101
