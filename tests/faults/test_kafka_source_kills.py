"""A pipeline that reads a topic and is killed: each message is in both sinks once, whenever it happens."""

from __future__ import annotations

import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.avro_frames import framed
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

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


ROWS = 60_000
SMALL, LARGE = {"EPOCH__ROWS": 100}, {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 25_000}
# The last one while executors read.
KILLS = (
    ("after-record@1", SMALL),
    ("after-commit:parquet@2", SMALL),
    ("before-finalize@1", SMALL),
    ("after-finalize@1", SMALL),
    ("after-commit:parquet@2", LARGE),
)


def test_kills_at_every_step_leave_each_message_once(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic(partitions=2)
    id_ = schema_registry.register(f"{topic}-value", SCHEMA)
    kafka.produce(topic, [framed(id_, SCHEMA, {"id": n}, key=str(n).encode()) for n in range(ROWS)])
    place.write(PIPELINE.format(topic=topic))
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url}
    for point, size in KILLS:
        killed = place.run(environment={VARIABLE: point}, **settings, **size)
        assert killed.code == -signal.SIGKILL, killed.stderr
    owed = [(n, 2 * n) for n in range(ROWS) if n % 4 != 1]
    child = place.start(**settings, **LARGE)
    child.until(lambda: all(place.count(f, f) >= len(owed) for f in ("parquet", "json")), "all rows")
    child.signal(signal.SIGTERM)
    child.wait().succeeded()
    for format_ in ("parquet", "json"):
        assert sorted((row["id"], row["twice"]) for row in place.rows(format_, format_)) == owed
