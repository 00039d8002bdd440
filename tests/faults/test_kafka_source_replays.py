"""An epoch that is replayed after its topic or its schema has changed: the same rows or fewer, and it ends."""

from __future__ import annotations

import json
import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.avro_frames import framed
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.faults, pytest.mark.servers]

PLAIN = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
PIPELINE = """\
sources:
  expiring: {{type: kafka, topic: {expiring}}}
  evolving: {{type: kafka, topic: {evolving}}}
sinks:
  first: {{type: file, from: expiring, path: first, format: parquet, batch_size: 200, batch_flush_interval: 3s}}
  second: {{type: file, from: expiring, path: second, format: json, batch_size: 200, batch_flush_interval: 3s}}
  third: {{type: file, from: evolving, path: third, format: parquet, batch_size: 200, batch_flush_interval: 3s}}
  fourth: {{type: file, from: evolving, path: fourth, format: json, batch_size: 200, batch_flush_interval: 3s}}
"""


def with_default(value: int) -> str:
    schema = json.loads(PLAIN)
    schema["fields"].append({"name": "more", "type": "int", "default": value})
    return json.dumps(schema)


def test_a_repeated_epoch_has_the_rows_that_are_left_as_they_were(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    expiring, evolving = kafka.topic(), kafka.topic()
    for topic in (expiring, evolving):
        id_ = schema_registry.register(f"{topic}-value", PLAIN)
        kafka.produce(topic, [framed(id_, PLAIN, {"id": n}) for n in range(100)])
    schema_registry.register(f"{evolving}-value", with_default(1))
    place.write(PIPELINE.format(expiring=expiring, evolving=evolving))
    # Both sources give all their rows to the first epoch: the sinks wait for that many.
    settings: dict[str, object] = {
        "KAFKA_SOURCE__BROKERS": kafka.brokers,
        "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url,
    }
    killed = place.start(environment={VARIABLE: "before-finalize@1"}, spark=False, **settings).wait()
    assert killed.code == -signal.SIGKILL, killed.stderr
    committed = {name: place.count(name, "parquet") for name in ("first", "third")}
    assert committed == {"first": 100, "third": 100}
    for name in ("second", "fourth"):  # these two lose their data
        for path in [*place.files(name, "json"), *(place.directory / name).rglob("log/*.json")]:
            path.unlink()
    kafka.expire(expiring, before=60)
    newest = schema_registry.register(f"{evolving}-value", with_default(2))
    kafka.produce(evolving, [framed(newest, with_default(2), {"id": 100, "more": 100})])
    kafka.produce(evolving, [framed(id_, PLAIN, {"id": 101})])
    child = place.start(spark=False, **settings)
    child.until(lambda: place.count("fourth", "json") >= 102, "all rows")
    child.signal(signal.SIGTERM)
    finished = child.wait().succeeded()
    assert "no longer has 60 of its offsets 0 to 100: it has 60 up to 100" in finished.stderr
    assert [row["id"] for row in place.rows("first", "parquet")] == list(range(100))
    assert [row["id"] for row in place.rows("second", "json")] == list(range(60, 100))
    for name, format_ in (("third", "parquet"), ("fourth", "json")):
        rows = [(row["id"], row["more"]) for row in place.rows(name, format_)]
        assert rows == [*((n, 1) for n in range(100)), (100, 100), (101, 2)]
