"""Updates and deletes that a query filters out: `when_filtered_out`, row by row and in a table."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from streamling.dev.topics import Message
from support.avro_frames import framed
from support.harness import MakeWorkspace, Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.schema_registry import SchemaRegistry

EXAMPLES = Path(__file__).parents[2] / "examples"

# Row 0 matches the conditions below, whatever its operation. Row 1 is not a number, row 2 has only its key.
SOURCES = """\
sources:
  changes:
    type: generator
    rows: 9
    primary_key: id
    columns:
      id: id
      n: "case id % 3 when 0 then concat('', id) when 1 then 'none' end"
      kind: "case when id % 3 < 2 then 'k' end"
      _gs_op: case id / 3 when 0 then 'i' when 1 then 'u' else 'd' end
transforms:
"""
# By name: the query, and the rows that become deletes: columns as they are, NULL for those that are computed.
QUERIES = {
    "plain": "SELECT id, kind, CAST(n AS BIGINT) AS n FROM changes WHERE n ~ '^[0-9]+$'",
    "starred": "SELECT * EXCEPT (n), CAST(n AS BIGINT) AS n FROM changes WHERE n ~ '^[0-9]+$'",
    "nested": "SELECT id, kind, n + 0 AS n FROM (SELECT id, kind, CAST(n AS BIGINT) AS n FROM changes"
    " WHERE n ~ '^[0-9]+$') c",
    "twice": "WITH some AS (SELECT id, kind, n FROM changes WHERE n IS NOT NULL)"
    " SELECT id, kind, CAST(n AS BIGINT) AS n FROM some WHERE n ~ '^[0-9]+$'",
    "computed": "WITH c AS (SELECT id, kind, n AS t, TRY_CAST(n AS BIGINT) AS n FROM changes)"
    " SELECT id, kind, n FROM c WHERE t ~ '^[0-9]+$'",
    "wrapped": "SELECT id, kind, n FROM (SELECT id, kind, CAST(n AS BIGINT) AS n FROM changes WHERE n ~ '^[0-9]+$'"
    " UNION ALL SELECT id, kind, CAST(n AS BIGINT) FROM nothing WHERE id < 0) u",
    "sampled": "SELECT id, kind, CAST(n AS BIGINT) AS n FROM changes WHERE n ~ '^[0-9]+$' AND random() >= 0",
    "parsed": "SELECT id, kind, parse_number(n) AS n FROM changes WHERE n ~ '^[0-9]+$'",
}
DELETING = """\
  {name}: {{type: sql, primary_key: id, when_filtered_out: delete, sql: "{sql}"}}
"""
OTHERS = """\
  nothing: {type: sql, primary_key: id, when_filtered_out: drop, sql: SELECT * FROM changes WHERE id < 0}
  dropping: {type: sql, primary_key: id, when_filtered_out: drop, sql: "SELECT id FROM changes WHERE n ~ '^[0-9]+$'"}
  replaced:
    type: sql
    primary_key: key
    when_filtered_out: delete
    sql: "SELECT concat('k', id) AS key, case kind when 'k' then 'u' end AS _gs_op FROM changes WHERE id % 3 = 0"
  chained:
    type: sql
    primary_key: key
    when_filtered_out: delete
    sql: SELECT key FROM replaced WHERE key <> 'k3'
"""
PARSE_NUMBER = """\
import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import register_udf


def parse_number(texts):
    return pc.cast(texts, pa.int64())


register_udf("parse_number", [pa.string()], pa.int64(), parse_number)
"""
EXPECTED = [
    {"id": 0, "kind": "k", "n": 0, "_gs_op": "i"},
    {"id": 3, "kind": "k", "n": 3, "_gs_op": "u"},
    {"id": 4, "kind": "k", "n": None, "_gs_op": "d"},
    {"id": 5, "kind": None, "n": None, "_gs_op": "d"},
    {"id": 6, "kind": "k", "n": 6, "_gs_op": "d"},
    {"id": 7, "kind": "k", "n": None, "_gs_op": "d"},
    {"id": 8, "kind": None, "n": None, "_gs_op": "d"},
]


@pytest.fixture(scope="module")
def changed(new_place: MakeWorkspace) -> Workspace:
    """One run of all queries over the same changes, each into files of its own."""
    place = new_place()
    deleting = "".join(DELETING.format(name=name, sql=sql) for name, sql in QUERIES.items())
    names = [*QUERIES, "dropping", "replaced", "chained"]
    sinks = "".join(f"  out_{name}: {{type: file, from: {name}, path: out/{name}, format: json}}\n" for name in names)
    place.write(f"{SOURCES}{deleting}{OTHERS}sinks:\n{sinks}", plugin=PARSE_NUMBER)
    place.run().succeeded()
    return place


@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
def test_an_update_or_delete_that_does_not_match_becomes_a_delete_in_its_place(changed: Workspace, name: str) -> None:
    rows = changed.rows(f"out/{name}", "json")
    assert [{column: row[column] for column in ("id", "kind", "n", "_gs_op")} for row in rows] == EXPECTED


@pytest.mark.spark
def test_rows_that_do_not_match_are_dropped_by_default(changed: Workspace) -> None:
    rows = changed.rows("out/dropping", "json")
    assert [(row["id"], row["_gs_op"]) for row in rows] == [(0, "i"), (3, "u"), (6, "d")]


@pytest.mark.spark
def test_the_operation_of_the_input_decides_and_a_delete_has_the_computed_key(changed: Workspace) -> None:
    expected = [("k0", "u"), ("k3", "u"), ("k4", "d"), ("k5", "d"), ("k6", "u"), ("k7", "d"), ("k8", "d")]
    assert [(row["key"], row["_gs_op"]) for row in changed.rows("out/replaced", "json")] == expected
    without = [(key, "d" if key == "k3" else operation) for key, operation in expected]
    assert [(row["key"], row["_gs_op"]) for row in changed.rows("out/chained", "json")] == without


@pytest.mark.spark
@pytest.mark.servers
def test_the_table_of_the_readme_has_exactly_the_rows_that_match(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, postgres: PostgresServer
) -> None:
    topic, database = kafka.topic("orders"), postgres.database()
    schema = (EXAMPLES / "data" / "order.avsc").read_text()
    id_ = schema_registry.register(f"{topic}-value", schema)

    def order(key: int, total: str, operation: str) -> Message:
        row = {"id": key, "customer": "Ann", "country": None, "total": Decimal(total), "placed_at": 0}
        return framed(id_, schema, row, operation, str(key).encode())

    def table() -> list[tuple[int, Decimal]]:
        return [(key, total) for key, total in database.rows("SELECT id, total FROM shop.orders ORDER BY id")]

    def run(rows: int) -> None:
        place.run(
            KAFKA_SOURCE__BROKERS=kafka.brokers,
            KAFKA_SOURCE__SCHEMA_REGISTRY_URL=schema_registry.url,
            NUM_RECORDS_BEFORE_STOP=rows,
            **database.settings(),
        ).succeeded()

    place.write((EXAMPLES / "orders_to_postgres.yaml").read_text().replace("topic: orders", f"topic: {topic}"))
    kafka.produce(
        topic, [order(1, "20.00", "c"), order(2, "5.00", "c"), order(3, "30.00", "c"), order(4, "40.00", "c")]
    )
    run(3)
    assert table() == [(1, Decimal("20.00")), (3, Decimal("30.00")), (4, Decimal("40.00"))]
    left, entered, only_key = order(1, "9.99", "u"), order(2, "10.00", "u"), Message(None, b"3")
    back = (order(4, "1.00", "u"), order(4, "41.00", "u"))
    kafka.produce(topic, [left, entered, only_key, *back])
    run(5)
    assert table() == [(2, Decimal("10.00")), (4, Decimal("41.00"))]
    kafka.produce(
        topic, [order(1, "11.00", "u"), order(4, "41.00", "d"), order(5, "1.00", "c"), order(6, "60.00", "c")]
    )
    run(3)
    assert table() == [(1, Decimal("11.00")), (2, Decimal("10.00")), (6, Decimal("60.00"))]
