"""A pipeline that reads a topic and is killed: each message is in both sinks once, whenever it happens."""

from __future__ import annotations

import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.avro_frames import framed
from support.doubling_plugin import doubling
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
PIPELINE = """\
sources:
  numbers: {{type: kafka, topic: {topic}, primary_key: id}}
transforms:
  chosen: {chosen}
sinks:
  parquet: {{type: file, from: chosen, path: parquet, format: parquet}}
  json: {{type: file, from: chosen, path: json, format: json}}
"""


PLUGIN = "{type: double, from: numbers, primary_key: id}"
SQL = '{type: sql, primary_key: id, sql: "SELECT id, id * 2 AS twice FROM numbers WHERE id % 4 <> 1"}'
CHOSEN = "batch.filter(pa.array([n % 4 != 1 for n in batch.column('id').to_pylist()]))"
ROWS = 60_000
SMALL, LARGE = {"EPOCH__ROWS": 100}, {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 25_000}
# The first ones with a plugin, which needs no Spark; then a query in its place, and the last one while executors read.
KILLS = (
    ("after-record@1", PLUGIN, SMALL),
    ("after-commit:parquet@2", PLUGIN, SMALL),
    ("before-finalize@1", PLUGIN, SMALL),
    ("after-finalize@1", PLUGIN, SMALL),
    ("before-finalize@2", SQL, SMALL),
    ("after-commit:parquet@2", SQL, LARGE),
)


def test_kills_at_every_step_leave_each_message_once(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic(partitions=2)
    id_ = schema_registry.register(f"{topic}-value", SCHEMA)
    kafka.produce(topic, [framed(id_, SCHEMA, {"id": n}, key=str(n).encode()) for n in range(ROWS)])
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url}
    for point, chosen, size in KILLS:
        place.write(PIPELINE.format(topic=topic, chosen=chosen), plugin=doubling("id", CHOSEN))
        killed = place.start(environment={VARIABLE: point}, spark=chosen == SQL, **settings, **size).wait()
        assert killed.code == -signal.SIGKILL, killed.stderr
    owed = [(n, 2 * n) for n in range(ROWS) if n % 4 != 1]
    last = place.start_warm(**settings, **LARGE)
    last.until(lambda: all(place.count(f, f) >= len(owed) for f in ("parquet", "json")), "all rows")
    last.stop().succeeded()
    for format_ in ("parquet", "json"):
        assert sorted((row["id"], row["twice"]) for row in place.rows(format_, format_)) == owed
