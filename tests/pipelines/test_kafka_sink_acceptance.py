"""From a topic through Spark into a topic: what consumers of it find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.avro_frames import framed
from support.harness import Finished, Workspace
from support.kafka_broker import KafkaBroker
from support.kafka_sink_samples import committed, decoded, rows_of
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]
EXAMPLES = Path(__file__).parents[2] / "examples"
# id, text, value
SCHEMA = """{"type": "record", "name": "itv", "doc": "{\\"primaryKeys\\": [\\"id\\"]}", "fields": [
    {"name": "id", "type": "long"}, {"name": "text", "type": "string"}, {"name": "value", "type": "double"}]}"""


class Copy:
    """A topic of rows, and a pipeline that copies it."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, registry: SchemaRegistry, rows: Sequence[Any]) -> None:
        self._place = place
        self._kafka = kafka
        self._registry = registry
        self._rows = rows
        self.topic = f"{kafka.topic('in')}"
        self.out = f"{self.topic}.out-1"
        id_ = registry.register(f"{self.topic}-value", SCHEMA)
        kafka.produce(self.topic, [framed(id_, SCHEMA, row) for row in rows])

    def run(self, options: str, **settings: object) -> Finished:
        self._place.write(
            f"sources: {{rows: {{type: kafka, topic: {self.topic}}}}}\n"
            f"transforms: {{kept: {{type: sql, primary_key: id, sql: 'SELECT id, text, value FROM rows'}}}}\n"
            f"sinks: {{out: {{type: kafka, from: kept, topic: {self.out}, {options}}}}}\n"
        )
        addresses = {
            f"KAFKA_{role}__{name}": value
            for role in ("SOURCE", "SINK")
            for name, value in (("BROKERS", self._kafka.brokers), ("SCHEMA_REGISTRY_URL", self._registry.url))
        }
        limit = {"NUM_RECORDS_BEFORE_STOP": len(self._rows), "APPLICATION_ID": self.topic}
        return self._place.run(**addresses, **limit, **settings).succeeded()

    def found(self) -> list[Any]:
        return decoded(self._registry.url, committed(self._kafka.brokers, self.out))


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "text": f"text {n}", "value": n / 2} for n in range(1, count + 1)]


def test_avro_output_in_batches(place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    """KO-01 and KO-03."""
    copy = Copy(place, kafka, schema_registry, rows(500))
    copy.run("data_format: avro, topic_partitions: 1, batch_size: 100", EPOCH__ROWS=100)
    found = copy.found()
    assert found == [{**row, "_gs_op": "i"} for row in rows(500)]
    assert next(iter(found[0])) == "id"


def test_gzip_into_a_topic_that_exists(place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    """KO-02 and KO-04."""
    copy = Copy(place, kafka, schema_registry, rows(50))
    kafka.topics.create(copy.out, 1)
    finished = copy.run("data_format: json, compression: gzip")
    assert "created topic" not in finished.stderr
    assert [row["id"] for row in rows_of(committed(kafka.brokers, copy.out))] == list(range(1, 51))
    (log,) = Path(kafka.site.directory).glob(f"data/{copy.out}-0/*.log")
    assert log.read_bytes()[22] & 7 == 1


def test_wide_numbers_and_bad_rows(place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    copy = Copy(place, kafka, schema_registry, [])
    place.write(f"""\
sources: {{rows: {{type: generator, rows: 40, primary_key: id, columns: {{id: id}}}}}}
transforms:
  wide:
    type: sql
    primary_key: id
    sql: >
      SELECT id, CAST('1234567890123456789012345678901234567890123456789' AS DECIMAL(60,2)) AS wide,
      CASE WHEN id = 7 THEN repeat('x', 5000) ELSE 'short' END AS text FROM rows
sinks:
  out:
    type: kafka
    from: wide
    topic: {copy.out}
    data_format: avro
    message_max_bytes: 4000
    on_error: dead_letter
    dead_letter: {{type: file, path: letters}}
""")
    settings = {"KAFKA_SINK__BROKERS": kafka.brokers, "KAFKA_SINK__SCHEMA_REGISTRY_URL": schema_registry.url}
    place.run(APPLICATION_ID=copy.topic, **settings).succeeded()
    found = copy.found()
    assert [row["id"] for row in found] == [n for n in range(40) if n != 7]
    assert {row["wide"] for row in found} == {Decimal("1234567890123456789012345678901234567890123456789.00")}
    (letters,) = (place.directory / "letters").glob("*.jsonl")
    assert "message_too_large" in letters.read_text() and "most of it is the column 'text'" in letters.read_text()


def test_the_example_publishes_the_changes_of_orders(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic("orders")
    rows, schema = EXAMPLES / "data" / "order_events.jsonl", EXAMPLES / "data" / "order.avsc"
    produce = ("dev", "produce", topic, str(rows), "--avro", str(schema), "--key", "id", "--op-column", "_gs_op")
    place.run(*produce, "--directory", str(kafka.site.directory.parent)).succeeded()
    place.write((EXAMPLES / "orders_to_topic.yaml").read_text().replace("topic: orders", f"topic: {topic}"))
    settings = {f"KAFKA_{role}__BROKERS": kafka.brokers for role in ("SOURCE", "SINK")}
    settings |= {f"KAFKA_{role}__SCHEMA_REGISTRY_URL": schema_registry.url for role in ("SOURCE", "SINK")}
    place.run(NUM_RECORDS_BEFORE_STOP=7, RECORD_BATCH_SIZE=1, APPLICATION_ID=topic, **settings).succeeded()
    messages = committed(kafka.brokers, f"{topic}.priced")
    found = [(row["id"], row["tax"], row["_gs_op"]) for row in decoded(schema_registry.url, messages)]
    events = [json.loads(line) for line in rows.read_text().splitlines()]
    owed = [(e["id"], (Decimal(str(e["total"])) / 5).quantize(Decimal("0.01")), e["_gs_op"]) for e in events]
    assert sorted(found, key=str) == sorted(owed, key=str)
    assert [m.headers[0][1].decode().replace("c", "i") for m in messages] == [op for _, _, op in found]
