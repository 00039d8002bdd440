"""Pipelines from topics to aggregate tables, on a real broker and a real database."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pytest

from streamling.dev.topics import Message
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

EXAMPLES = Path(__file__).parents[2] / "examples"
PIPELINE = """\
sources:
  payments: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64, account: string, amount: int64}}}}
sinks:
  balances:
    type: postgres_aggregate
    from: payments
    schema: streamling
    landing_table: payments
    agg_table: balances
    primary_key: id
    group_by: {{account: {{type: text}}}}
    aggregate: {{balance: {{from: amount, fn: sum}}}}
    {options}
"""


def payments(rows: Iterable[tuple[str, int, str | None, int]]) -> list[Message]:
    return [
        Message(
            json.dumps({"id": id_, "account": account, "amount": amount}).encode(),
            str(id_).encode(),
            headers=(("dbz.op", operation.encode()),),
        )
        for operation, id_, account, amount in rows
    ]


def settings(kafka: KafkaBroker, database: Database, rows: int) -> dict[str, object]:
    """Rows stay in the landing table for the time of a test."""
    return {
        "KAFKA_SOURCE__BROKERS": kafka.brokers,
        "NUM_RECORDS_BEFORE_STOP": rows,
        "CHECKPOINT_INTERVAL_SEC": 300,
        **database.settings(),
    }


def test_sums_with_inserts_and_deletes(place: Workspace, kafka: KafkaBroker, postgres: PostgresServer) -> None:
    database, topic = postgres.database(), kafka.topic()
    rows = [("c", 1, "alice", 100), ("c", 2, "alice", 50), ("d", 3, "alice", 30), ("c", 4, "bob", 200)]
    rows += [("c", 5, "bob", 75), ("d", 6, "bob", 100), ("d", 7, "bob", 50), ("c", 8, "alice", 0)]
    kafka.produce(topic, payments(rows))
    place.write(PIPELINE.format(topic=topic, options="batch_size: 10\n    batch_flush_interval: 1s"))
    place.run(**settings(kafka, database, 8)).succeeded()
    assert database.rows("SELECT count(*), count(DISTINCT _gs_op) FROM streamling.payments") == [(8, 2)]
    assert database.rows(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = 'streamling.payments'::regclass AND contype = 'p'"
    ) == [("PRIMARY KEY (id, _gs_op)",)]
    assert database.rows("SELECT * FROM streamling.balances ORDER BY 1") == [("alice", 120), ("bob", 125)]


def test_parallel_landing_writes_stay_exact(place: Workspace, kafka: KafkaBroker, postgres: PostgresServer) -> None:
    database, topic = postgres.database(), kafka.topic(partitions=2)
    kafka.produce(topic, payments(("c", n, "bob" if n % 2 else "alice", n) for n in range(1, 21)))
    place.write(PIPELINE.format(topic=topic, options="parallelism: 2\n    batch_size: 1"))
    place.run(RECORD_BATCH_SIZE=1, **settings(kafka, database, 20)).succeeded()
    assert database.rows("SELECT count(*) FROM streamling.payments") == [(20,)]
    assert database.rows("SELECT * FROM streamling.balances ORDER BY 1") == [("alice", 110), ("bob", 100)]


def test_bad_rows_become_dead_letters_and_the_others_count(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    database, topic = postgres.database(), kafka.topic()
    largest = 2**63 - 1
    kafka.produce(
        topic, payments([("c", 1, "alice", 5), ("c", 2, None, 7), ("c", 3, "bob", largest), ("c", 4, "bob", 1)])
    )
    letters = "on_error: dead_letter\n    dead_letter: {type: file, path: letters}"
    place.write(PIPELINE.format(topic=topic, options=letters))
    place.run(**settings(kafka, database, 2)).succeeded()
    assert database.rows("SELECT * FROM streamling.balances ORDER BY 1") == [("alice", 5), ("bob", largest)]
    listed = place.run("dlq", "list", "--format", "json").succeeded().stdout
    assert "the group column account is null" in listed
    assert "table streamling.balances, column 'balance': bigint out of range" in listed


def test_plan_shows_the_guarantee(place: Workspace) -> None:
    place.write(PIPELINE.format(topic="any", options="retract: true"))
    shown = place.run("plan", "pipeline.yaml").succeeded().stdout
    assert "exactly once" in shown


def test_the_example_follows_updates_and_deletes(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, postgres: PostgresServer
) -> None:
    topic, database = kafka.topic("orders"), postgres.database()
    rows, schema = EXAMPLES / "data" / "order_events.jsonl", EXAMPLES / "data" / "order.avsc"
    produce = ("dev", "produce", topic, str(rows), "--avro", str(schema), "--key", "id", "--op-column", "_gs_op")
    place.run(*produce, "--directory", str(kafka.site.directory.parent)).succeeded()
    place.write((EXAMPLES / "revenue.yaml").read_text().replace("topic: orders", f"topic: {topic}"))
    place.run(
        KAFKA_SOURCE__SCHEMA_REGISTRY_URL=schema_registry.url,
        **settings(kafka, database, len(rows.read_text().splitlines()) - 2),  # two keys come twice
    ).succeeded()
    assert database.rows("SELECT * FROM shop.revenue_by_country ORDER BY 1") == [
        ("FR", Decimal("258.00"), 2, Decimal("250.00")),
        ("IN", Decimal("77.77"), 1, Decimal("77.77")),
        ("NO", Decimal("135.50"), 1, Decimal("135.50")),
    ]
