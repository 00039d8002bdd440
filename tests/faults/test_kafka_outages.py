"""Brokers and registries that fail while a pipeline runs: it waits, logs it, continues, and delivers each row once."""

from __future__ import annotations

import json
import signal
import time

import pytest

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.faults, pytest.mark.servers]

PLAIN = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
MORE = json.dumps({**json.loads(PLAIN), "fields": [{"name": "id", "type": "int"}]})
FILES = {"a": "parquet", "b": "json", "c": "json"}
PIPELINE = """\
sources:
  first: {{type: kafka, topic: {one}}}
  again: {{type: kafka, topic: {one}}}
  other: {{type: kafka, topic: {two}, data_format: json, schema: {{id: int64}}}}
sinks:
  a: {{type: file, from: first, path: a, format: parquet}}
  b: {{type: file, from: again, path: b, format: json}}
  c: {{type: file, from: other, path: c, format: json}}
"""


def test_a_broker_may_restart_and_stay_away(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    one, two = kafka.topic(partitions=2), kafka.topic()
    id_ = schema_registry.register(f"{one}-value", PLAIN)
    sent = 0

    def produce(count: int) -> None:
        nonlocal sent
        numbers = range(sent, sent + count)
        kafka.produce(one, [Message(framed(id_, PLAIN, {"id": n}).value, partition=n % 2) for n in numbers])
        kafka.produce(two, [json.dumps({"id": n}) for n in numbers])
        sent += count

    def arrived() -> bool:
        return all(place.count(name, format_) >= sent for name, format_ in FILES.items())

    produce(500)
    place.write(PIPELINE.format(one=one, two=two))
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url}
    child = place.start(spark=False, CHECKPOINT_INTERVAL_SEC=1, **settings)
    child.until(arrived, "the first rows")
    kafka.restart()
    produce(500)
    child.until(arrived, "rows behind the restart")
    failed = child.stderr.count("reading first failed")
    kafka.kill()
    # Longer than a single request may take.
    child.until(lambda: child.stderr.count("reading first failed") > failed, "an attempt that fails")
    kafka.start()
    produce(500)
    child.until(arrived, "rows behind the outage")
    kafka.stop()
    try:
        child.signal(signal.SIGTERM)
        finished = child.wait().succeeded()
        assert "did not complete in time" not in finished.stderr
    finally:
        kafka.start()
    for name, format_ in FILES.items():
        assert sorted(row["id"] for row in place.rows(name, format_)) == list(range(sent))


def test_a_registry_may_be_away_when_a_schema_turns_up(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic()
    older = schema_registry.register(f"{topic}-value", MORE)
    id_ = schema_registry.register(f"{topic}-value", PLAIN)
    kafka.produce(topic, [framed(id_, PLAIN, {"id": 0})])
    place.write(f"""\
sources: {{numbers: {{type: kafka, topic: {topic}}}}}
sinks: {{out: {{type: file, from: numbers, path: out, format: json}}}}
""")
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url}
    settings |= {"CHECKPOINT_INTERVAL_SEC": "1"}
    child = place.start(spark=False, **settings)
    child.until(lambda: place.count("out", "json") == 1, "a row")
    schema_registry.stop()
    try:
        kafka.produce(topic, [framed(older, MORE, {"id": 1})])
        child.until(lambda: "reading numbers failed (attempt 4)" in child.stderr, "attempts")
        assert f"topic '{topic}', partition 0, offset 1: the schema registry at" in child.stderr
        began = time.monotonic()
        child.signal(signal.SIGTERM)
        child.wait().succeeded()
        assert time.monotonic() - began < 15
        refused = place.start(spark=False, **settings).wait().failed()
        assert "kafka source 'numbers': failed to create Kafka source" in refused.stderr
        assert f"failed to fetch Avro schema from Schema Registry for topic '{topic}'" in refused.stderr
    finally:
        schema_registry.start()
    child = place.start(spark=False, **settings)
    child.until(lambda: place.count("out", "json") == 2, "the row behind the outage")
    schema_registry.stop()
    try:
        # What is known already is decoded without the registry; a new schema waits for it.
        kafka.produce(topic, [framed(id_, PLAIN, {"id": 2})])
        child.until(lambda: place.count("out", "json") == 3, "a row of a known schema")
    finally:
        schema_registry.start()
    child.signal(signal.SIGTERM)
    child.wait().succeeded()
    assert [row["id"] for row in place.rows("out", "json")] == [0, 1, 2]
