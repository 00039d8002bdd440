"""Queries look values up in dynamic tables, and fill them, in epochs of the driver and of executors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamling.dev.topics import Message
from support.doc_pages import ROOT
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.spark

SMALL, LARGE = {"EPOCH__ROWS": 3}, {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 4}
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
HEAD = """\
sources:
  events: {type: file, path: in, format: json, primary_key: id, mode: {type: bounded},
           schema: {id: int64, name: string, kind: string, tags: [string]}}
transforms:
"""
TAIL = """
sinks:
  out: {type: file, from: result, path: out, format: json}
"""


def write(place: Workspace, rows: list[dict[str, Any]], transforms: str, head: str = HEAD) -> None:
    (place.directory / "in").mkdir(exist_ok=True)
    (place.directory / "in" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place.write(head + transforms + TAIL)


def connected(database: Database) -> dict[str, object]:
    names = {"HOST": database.host, "PORT": database.port, "USER": database.user, "PASSWORD": database.password}
    named = {**names, "DB": database.name, "SSLMODE": "disable"}
    return {f"DYNAMIC_TABLE_BACKEND__POSTGRES__{name}": value for name, value in named.items()}


def events(names: list[str | None], **more: list[Any]) -> list[dict[str, Any]]:
    return [{"id": n, "name": name, **{key: values[n] for key, values in more.items()}} for n, name in enumerate(names)]


FIRST_OF_EACH = """\
  seen: {type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, populate: after,
         sql: "SELECT name FROM events WHERE kind = 'x'"}
  result: {type: sql, primary_key: id,
           sql: "SELECT id, dynamic_table_check('seen', 'b') AS b FROM events
                 WHERE kind <> 'z' AND NOT dynamic_table_check('seen', name)"}
"""


@SIZES
def test_the_first_row_of_each_value_passes_whatever_the_epochs_are(place: Workspace, size: dict[str, object]) -> None:
    """As if each row were an epoch of its own: row 0 does not add its value, row 9 comes after it was added."""
    names = ["a", "a", "a", "b", None, "b", "c", "c", "a", "d", "d", "c"]
    kinds = ["y", "x", "x", "x", "x", "x", "z", "x", "y", "x", "z", "x"]
    write(place, events(names, kind=kinds), FIRST_OF_EACH)
    place.run(**size).succeeded()
    rows = [(row["id"], row["b"]) for row in place.rows("out", "json")]
    assert rows == [(0, False), (1, False), (3, False), (7, True), (9, True)]


EVERYWHERE = """\
  vips: {type: dynamic_table, backend_type: Postgres, backend_entity_name: vips, schema: shop, column: name}
  lower: {type: sql, primary_key: id, sql: "SELECT id, name, tags FROM events"}
  result:
    type: sql
    primary_key: id
    sql: >
      WITH named AS (SELECT id, lower(name) AS name, tags FROM lower WHERE id < 100)
      SELECT id,
             dynamic_table_check('VIPS', name) AS is_vip,
             CASE WHEN dynamic_table_check('vips', upper(name)) THEN 'upper' ELSE 'other' END AS word,
             dynamic_table_check('vips', tags) AS tagged,
             NOT dynamic_table_check('vips', tags) OR dynamic_table_check('vips', 'ann') AS some,
             dynamic_table_check('vips', NULL) AS nothing
      FROM named
      WHERE dynamic_table_check('vips', name) IS NOT FALSE OR dynamic_table_check(concat('v', 'ips'), tags)
"""


@pytest.mark.servers
@SIZES
def test_a_check_may_stand_in_any_expression(
    place: Workspace, postgres: PostgresServer, size: dict[str, object]
) -> None:
    """With text and lists; NULL gives NULL, an empty list gives false, NULL in a list is ignored."""
    database = postgres.database()
    database.execute(
        "CREATE SCHEMA shop; CREATE TABLE shop.vips (name TEXT); INSERT INTO shop.vips VALUES ('ann'), ('BOB')"
    )
    tags = [["x", "ann"], [], None, [None, "BOB"], ["bob"], [None]]
    names = ["ANN", "bob", None, "cid", "Bob", "cid"]
    write(place, events(names, tags=tags), EVERYWHERE)
    place.run(**size, **connected(database)).succeeded()
    columns = ("id", "is_vip", "word", "tagged", "some", "nothing")
    assert [tuple(row.get(c) for c in columns) for row in place.rows("out", "json")] == [
        (0, True, "other", True, True, None),
        (2, None, "other", None, True, None),
        (3, False, "other", True, True, None),
    ]


FETCHED = """\
  customers: {type: dynamic_table, backend_type: Postgres, backend_entity_name: customers, schema: shop, column: name,
              columns: {tier: string, discount: "decimal(6,2)", since: timestamp(UTC), active: boolean, visits: int64}}
  tiers: {type: dynamic_table, backend_type: InMemory, backend_entity_name: tiers, sql: "SELECT kind FROM events"}
  result:
    type: sql
    primary_key: id
    sql: >
      SELECT id, dynamic_table_get('customers', name, 'tier') AS tier,
             dynamic_table_get('customers', name, 'discount') * 2 AS discount,
             dynamic_table_get('customers', name, 'since') AS since,
             dynamic_table_get('customers', name, 'active') AS active,
             dynamic_table_get('customers', lower(name), 'visits') + 1 AS visits,
             dynamic_table_check('tiers', dynamic_table_get('customers', name, 'tier')) AS known
      FROM events WHERE dynamic_table_check('customers', name) OR id = 2
"""


@pytest.mark.servers
@SIZES
def test_values_of_other_columns_are_fetched(
    place: Workspace, postgres: PostgresServer, size: dict[str, object]
) -> None:
    """NULL if the key is absent; a call may be the value of another one; one statement fetches all columns."""
    database = postgres.database()
    database.execute(
        "CREATE SCHEMA shop; CREATE TABLE shop.customers "
        "(name TEXT PRIMARY KEY, tier VARCHAR(9), discount NUMERIC, since TIMESTAMPTZ, active BOOLEAN, visits INT);"
        "INSERT INTO shop.customers VALUES ('ann', E'go\"l\\nd', 7.25, '2024-02-03 04:05:06.5+02', true, 41), "
        "('bob', '', NULL, NULL, false, NULL)"
    )
    write(place, events(["ann", "bob", "cid", None], kind=['go"l\nd', "x", "y", "z"]), FETCHED)
    place.run(**size, **connected(database)).succeeded()
    columns = ("id", "tier", "discount", "since", "active", "visits", "known")
    rows = [tuple(str(row.get(c)) for c in columns) for row in place.rows("out", "json")]
    assert rows == [
        ("0", 'go"l\nd', "14.5", "2024-02-03T02:05:06.500000Z", "True", "42", "True"),
        ("1", "", "None", "None", "False", "None", "False"),
        ("2", "None", "None", "None", "None", "None", "None"),
    ]


FILTERED = """\
  known: {type: dynamic_table, backend_type: InMemory, backend_entity_name: known, same_input: false,
          sql: "SELECT name FROM customers c WHERE c.name <> 'bob'"}
  result: {type: sql, primary_key: id, sql: "SELECT id FROM events WHERE dynamic_table_check('known', name)"}
"""
TWO_INPUTS = HEAD.replace(
    "transforms:",
    "  customers: {type: file, path: more, format: json, primary_key: id, mode: {type: bounded},\n"
    "              schema: {id: int64, name: string}}\ntransforms:",
)


def test_a_table_may_be_filled_from_an_input_that_nothing_else_reads(place: Workspace) -> None:
    (place.directory / "more").mkdir()
    (place.directory / "more" / "rows.jsonl").write_text('{"id": 1, "name": "ann"}\n{"id": 2, "name": "bob"}\n')
    write(place, events(["ann", "bob", "cid", "ann"]), FILTERED, TWO_INPUTS)
    place.run().succeeded()
    assert [row["id"] for row in place.rows("out", "json")] == [0, 3]


def test_rows_that_a_query_cannot_compute_are_not_looked_up(place: Workspace) -> None:
    """In the values that are looked up, in the other columns, and in the query that fills the table."""
    table = """\
  seen: {type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, populate: after, on_error: skip,
         sql: "SELECT (10 / CAST(kind AS BIGINT))::text FROM events"}
  result: {type: sql, primary_key: id, on_error: skip, sql: "SELECT id, 10 / CAST(name AS BIGINT) AS n FROM events
           WHERE NOT dynamic_table_check('seen', (10 / CAST(kind AS BIGINT))::text)"}
"""
    names, kinds = ["1", "0", "5", "2", "1", "5"], ["1", "2", "0", "2", "5", "1"]
    write(place, events(names, kind=kinds), table)
    place.run().succeeded()
    # Row 1 fails in its own column but has added its value, row 2 in the value itself, row 5 repeats row 0.
    assert [row["id"] for row in place.rows("out", "json")] == [0, 4]


@pytest.mark.servers
def test_rows_that_the_filter_of_a_source_drops_fill_tables_all_the_same(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    rows = [{"id": 1, "name": "ann", "kind": "x"}, {"id": 2, "name": "bob", "kind": "y"}, {"id": 3, "name": "ann"}]
    kafka.produce(topic, [Message(json.dumps(row).encode()) for row in rows])
    place.write(
        f"""\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, primary_key: id, filter: "kind <> 'x'",
           schema: {{id: int64, name: string, kind: string}}}}
transforms:
  seen: {{type: dynamic_table, backend_type: InMemory, backend_entity_name: seen, sql: SELECT kind FROM events}}
  result: {{type: sql, primary_key: id, sql: "SELECT id, dynamic_table_check('seen', 'x') AS x FROM events"}}
{TAIL}"""
    )
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "NUM_RECORDS_BEFORE_STOP": 1}
    place.run(**settings).succeeded()
    assert [(row["id"], row["x"]) for row in place.rows("out", "json")] == [(2, True)]


@pytest.mark.servers
def test_the_examples_run(place: Workspace, postgres: PostgresServer) -> None:
    database = postgres.database()
    database.execute("CREATE TABLE vips (name TEXT PRIMARY KEY, tier TEXT); INSERT INTO vips VALUES ('c3', 'gold')")
    for name in ("first_of_each", "vips"):
        place.write((ROOT / "examples" / f"{name}.yaml").read_text())
        place.run(APPLICATION_ID=name, EPOCH__ROWS=30, **connected(database)).succeeded()
    unique = place.rows("out/unique_events", "json")
    assert [row["event_id"] for row in unique] == [f"e-{n}" for n in range(50)]
    orders = place.rows("out/vip_orders", "json")
    assert [(row["id"], row["tier"]) for row in orders] == [(n, "gold") for n in range(3, 100, 10)]
    assert len(database.rows("SELECT value FROM streamling.seen_events")) == 50
