"""A pipeline that reads a topic and is killed: each message is in both sinks once, whenever it happens."""

from __future__ import annotations

import signal

import pytest
from avro_frames import framed
from harness import Workspace
from kafka_broker import KafkaBroker
from schema_registry import SchemaRegistry

from streamling.testing.crash import VARIABLE

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
PIPELINE = """\
sources:
  numbers: {{type: kafka, topic: {topic}, primary_key: id}}
transforms:
  chosen: {{type: sql, primary_key: id, sql: "SELECT id, id * 2 AS twice FROM numbers WHERE id % 4 <> 1"}}
sinks:
  parquet: {{type: file, from: chosen, path: parquet, format: parquet}}
  json: {{type: file, from: chosen, path: json, format: json}}
"""


def prepared(place: Workspace, kafka: KafkaBroker, registry: SchemaRegistry, rows: int) -> dict[str, object]:
    topic = kafka.topic(partitions=2)
    id_ = registry.register(f"{topic}-value", SCHEMA)
    kafka.produce(topic, [framed(id_, SCHEMA, {"id": n}, key=str(n).encode()) for n in range(rows)])
    place.write(PIPELINE.format(topic=topic))
    return {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": registry.url}


def finish(place: Workspace, rows: int, settings: dict[str, object]) -> None:
    """Run until everything has arrived, and see that it has once."""
    owed = [(n, 2 * n) for n in range(rows) if n % 4 != 1]
    child = place.start(**settings)
    child.until(lambda: all(len(place.rows(f, f)) >= len(owed) for f in ("parquet", "json")), "all rows")
    child.signal(signal.SIGTERM)
    child.wait().succeeded()
    for format_ in ("parquet", "json"):
        assert sorted((row["id"], row["twice"]) for row in place.rows(format_, format_)) == owed


def test_kills_at_every_step_leave_each_message_once(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    settings = prepared(place, kafka, schema_registry, 900) | {"EPOCH__ROWS": 100}
    for point in ("after-record@1", "after-commit:parquet@2", "before-finalize@1", "after-finalize@1"):
        killed = place.run(environment={VARIABLE: point}, **settings)
        assert killed.code == -signal.SIGKILL, killed.stderr
    finish(place, 900, settings)


def test_a_kill_while_executors_read_leaves_each_message_once(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    settings = prepared(place, kafka, schema_registry, 60_000) | {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 25_000}
    killed = place.run(environment={VARIABLE: "after-commit:parquet@2"}, **settings)
    assert killed.code == -signal.SIGKILL, killed.stderr
    finish(place, 60_000, settings)
