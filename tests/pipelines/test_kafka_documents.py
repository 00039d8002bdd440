"""Messages as applications and Kafka Connect write them: nested JSON, envelopes of Debezium, text of any kind."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

ORDER = """{"id": %d, "user": {"name": "Ann", "home": {"city": "Oslo", "tags": ["a", null]}},
  "items": [{"sku": "x", "prices": [{"amount": 12345678901234567.89}]}, {"sku": "y", "prices": []}],
  "labels": {"colour": "red", "size": "XL"}, "extra": {"n" : 1.50e2, "deep": [[12345678901234567890]]},
  "unused": [{}]}"""
ORDERS = """\
sources:
  orders:
    type: kafka
    topic: {topic}
    data_format: json
    primary_key: id
    on_error: dead_letter
    dead_letter: {{type: file, path: letters}}
    schema:
      id: bigint
      user: {{name: varchar, home: {{city: text, tags: [text]}}}}
      items: "list<struct<sku: string, prices: list<struct<amount: decimal(20,2)>>>>"
      labels: {{"*": string}}
      extra: string
transforms:
  flat:
    type: sql
    primary_key: id, sku
    sql: |
      SELECT id, name, city, tags, labels, extra, item['sku'] AS sku, item['prices'][1]['amount'] AS amount
      FROM (SELECT id, orders.user['name'] AS name, orders.user['home']['city'] AS city,
                   orders.user['home']['tags'] AS tags, labels, extra, unnest(items) AS item FROM orders)
sinks:
  table: {{type: postgres, from: flat, schema: public, table: items}}
"""


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_nested_messages_reach_columns_and_documents_of_a_table(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer, driver_rows: int
) -> None:
    topic, database = kafka.topic("orders"), postgres.database()
    bad = (ORDER % 2).replace('"a", null', '"a", 5')
    kafka.produce(topic, [ORDER % 1, bad, ORDER % 3])
    place.write(ORDERS.format(topic=topic))
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, **database.settings()}
    place.run(EPOCH__DRIVER_ROWS=driver_rows, NUM_RECORDS_BEFORE_STOP=4, **settings).succeeded()
    columns = "id, name, city, tags, labels, extra, sku, amount"
    rows = database.rows(f"SELECT {columns} FROM items ORDER BY id, sku")
    same = ("Ann", "Oslo", ["a", None], {"colour": "red", "size": "XL"})
    extra = '{"n" : 1.50e2, "deep": [[12345678901234567890]]}'
    assert rows == [
        (id_, *same, extra, sku, amount)
        for id_ in (1, 3)
        for sku, amount in (("x", Decimal("12345678901234567.89")), ("y", None))
    ]
    (letters,) = (place.directory / "letters").glob("*.jsonl")
    (letter,) = map(json.loads, letters.read_text().splitlines())
    assert letter["source"]["offset"] == 1
    assert letter["reason_text"].endswith("column 'user.home.tags[1]': 5 is not a valid string")


def change(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"connector": "postgresql"}, "ts_ms": 1}


def row(id_: int, name: str, total: str) -> dict[str, Any]:
    return {"id": id_, "name": name, "total": total}


CHANGES = [
    change("r", None, row(1, "Ann", "1.10")),
    change("c", None, row(2, "Bo", "2.20")),
    change("c", None, row(3, "Cy", "3.30")),
    change("u", row(1, "Ann", "1.10"), row(1, "Anna", "12345678901234567.89")),
    change("d", {"id": 2}),
    None,
]
KEPT = [(1, "Anna", Decimal("12345678901234567.89")), (3, "Cy", Decimal("3.30"))]
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "total", "type": ["null", "string"], "default": None},
]
ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": FIELDS}]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
)


def test_a_table_follows_the_changes_that_debezium_sends(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, postgres: PostgresServer
) -> None:
    """As plain JSON, in the wrapper of the JSON converter, and as Avro."""
    database, topics = postgres.database(), {form: kafka.topic(form) for form in ("plain", "wrapped", "avro")}
    id_ = schema_registry.register(f"{topics['avro']}-value", ENVELOPE)
    kafka.produce(topics["plain"], [None if one is None else json.dumps(one) for one in CHANGES])
    wrapped = [None if one is None else {"schema": {"type": "struct"}, "payload": one} for one in CHANGES]
    kafka.produce(topics["wrapped"], [None if one is None else json.dumps(one) for one in wrapped])
    empty = dict.fromkeys(("id", "name", "total"))
    filled = [{**one, "before": one["before"] and {**empty, **one["before"]}} for one in CHANGES if one is not None]
    kafka.produce(topics["avro"], [*(framed(id_, ENVELOPE, one) for one in filled), Message(None, b"2")])
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": schema_registry.url}
    declared = 'data_format: json, schema: {id: bigint, name: text, total: "numeric(20,2)"}'
    for form, topic in topics.items():
        place.write(f"""\
sources:
  changes: {{type: kafka, topic: {topic}, envelope: debezium, primary_key: id, {declared if form != "avro" else ""}}}
transforms:
  typed: {{type: sql, primary_key: id, sql: "SELECT id, name, CAST(total AS decimal(20,2)) AS total FROM changes"}}
sinks:
  table: {{type: postgres, from: typed, schema: public, table: {form}}}
""")
        place.run(APPLICATION_ID=form, NUM_RECORDS_BEFORE_STOP=1, **settings, **database.settings()).succeeded()
        assert database.rows(f"SELECT id, name, total FROM public.{form} ORDER BY id") == KEPT


def test_raw_payloads_are_taken_apart_in_sql(place: Workspace, kafka: KafkaBroker, postgres: PostgresServer) -> None:
    topic, database = kafka.topic("raw"), postgres.database()
    texts = [b'{"user": {"name": "Ann"}, "n": [1, 2]}', b"no JSON at all", b"\xff", None, b"[1]"]
    kafka.produce(topic, texts)
    place.write(f"""\
sources:
  lines: {{type: kafka, topic: {topic}, data_format: raw, include_metadata: true, on_error: skip}}
transforms:
  named:
    type: sql
    primary_key: place
    sql: |
      SELECT __kafka_offset AS place, value, json_value(value, '$.user.name') AS name,
             json_query(value, '$.n') AS numbers
      FROM lines
sinks:
  table: {{type: postgres, from: named, schema: public, table: lines}}
""")
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, **database.settings()}
    place.run(NUM_RECORDS_BEFORE_STOP=3, **settings).succeeded()
    assert database.rows("SELECT place, value, name, numbers FROM lines ORDER BY place") == [
        (0, texts[0].decode() if texts[0] else "", "Ann", "[1,2]"),
        (1, "no JSON at all", None, None),
        (4, "[1]", None, None),
    ]
