"""The pipeline of the README: from a topic through a query into a table, with the commands that stand there."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_table_is_what_the_topic_says(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, postgres: PostgresServer
) -> None:
    topic, database = kafka.topic("orders"), postgres.database()
    settings = {
        "KAFKA_SOURCE__BROKERS": kafka.brokers,
        "KAFKA_SINK__BROKERS": kafka.brokers,
        "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url,
        "KAFKA_SINK__SCHEMA_REGISTRY_URL": schema_registry.url,
        **database.settings(),
    }
    rows, schema = EXAMPLES / "data" / "order_events.jsonl", EXAMPLES / "data" / "order.avsc"
    stack = str(kafka.site.directory.parent)
    produce = ("dev", "produce", topic, str(rows), "--avro", str(schema), "--key", "id", "--op-column", "_gs_op")
    place.run(*produce, "--directory", stack).succeeded()
    example = (EXAMPLES / "orders_to_postgres.yaml").read_text()
    place.write(example.replace("topic: orders", f"topic: {topic}"))
    child = place.start_warm(**settings)
    child.until(lambda: '"id":5' in child.stdout, "the last row")
    child.until(lambda: _count(database) == 3, "three rows in the table")
    child.stop().succeeded()
    assert database.rows("SELECT id, customer, country, total, tax FROM shop.orders ORDER BY id") == [
        (1, "ANN", "NO", Decimal("135.50"), Decimal("27.10")),
        (4, "DIA", "IN", Decimal("77.77"), Decimal("15.55")),
        (5, "EVA", "FR", Decimal("250.00"), Decimal("50.00")),
    ]


def _count(database: Database) -> int:
    ((there,),) = database.rows("SELECT to_regclass('shop.orders') IS NOT NULL")
    return int(database.rows("SELECT count(*) FROM shop.orders")[0][0]) if there else 0
