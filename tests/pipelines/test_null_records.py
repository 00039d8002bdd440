"""A record that is null, although its members are not nullable: in a column, a list, a map and another record."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.avro_frames import framed
from support.harness import Row, Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

INNER: dict[str, Any] = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "long"}]}
FIELDS = {
    "id": "long",
    "plain": ["null", INNER],
    "listed": {"type": "array", "items": ["null", "Inner"]},
    "mapped": {"type": "map", "values": ["null", "Inner"]},
    "nested": ["null", {"type": "record", "name": "Outer", "fields": [{"name": "r", "type": ["null", "Inner"]}]}],
}
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in FIELDS.items()]})
ROWS: list[Row] = [
    {"id": 1, "plain": None, "listed": [None], "mapped": {"k": None}, "nested": {"r": None}},
    {"id": 2, "plain": {"a": 2}, "listed": [{"a": 2}], "mapped": {"k": {"a": 2}}, "nested": {"r": {"a": 2}}},
    {"id": 3, "plain": None, "listed": [], "mapped": {}, "nested": None},
]
NODES = ("rows", "query")
PIPELINE = """\
sources: {{rows: {source}}}
transforms: {{query: {{type: sql, primary_key: id, sql: "SELECT * FROM rows"}}}}
sinks:
  rows_table: {{type: postgres, from: rows, schema: public, table: rows}}
  rows_files: {{type: file, from: rows, path: rows, format: parquet}}
  query_table: {{type: postgres, from: query, schema: public, table: query}}
  query_files: {{type: file, from: query, path: query, format: parquet}}
"""


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


@pytest.mark.parametrize("driver_rows", [1000, 0], ids=["small", "large"])
def test_a_null_record_of_a_topic_arrives_as_null(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, database: Database, driver_rows: int
) -> None:
    topic = kafka.topic()
    id_ = schema_registry.register(f"{topic}-value", SCHEMA)
    kafka.produce(topic, [framed(id_, SCHEMA, row) for row in ROWS])
    place.write(PIPELINE.format(source=f"{{type: kafka, topic: {topic}, primary_key: id}}"))
    place.run(
        KAFKA_SOURCE__BROKERS=kafka.brokers,
        KAFKA_SOURCE__SCHEMA_REGISTRY_URL=schema_registry.url,
        EPOCH__DRIVER_ROWS=driver_rows,
        NUM_RECORDS_BEFORE_STOP=len(ROWS),
        **database.settings(),
    ).succeeded()
    _assert_arrived(place, database)


@pytest.mark.parametrize("driver_rows", [1000, 0], ids=["small", "large"])
def test_a_null_record_of_a_file_arrives_as_null(place: Workspace, database: Database, driver_rows: int) -> None:
    (place.directory / "in").mkdir()
    pq.write_table(_table(), place.directory / "in" / "rows.parquet")
    place.write(
        PIPELINE.format(source="{type: file, path: in, format: parquet, primary_key: id, mode: {type: bounded}}")
    )
    place.run(EPOCH__DRIVER_ROWS=driver_rows, **database.settings()).succeeded()
    _assert_arrived(place, database)


def _assert_arrived(place: Workspace, database: Database) -> None:
    for node in NODES:
        found = database.rows(f"SELECT {', '.join(FIELDS)} FROM {node} ORDER BY id")
        assert [dict(zip(FIELDS, row, strict=True)) for row in found] == ROWS, node
        files = [{**row, "mapped": dict(row["mapped"])} for row in place.rows(node, "parquet")]
        assert files == [row | {"_gs_op": "i"} for row in ROWS], node


def _table() -> pa.Table:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    types = [pa.int64(), inner, pa.list_(inner), pa.map_(pa.string(), inner), pa.struct([pa.field("r", inner)])]
    rows = [{**row, "mapped": list(row["mapped"].items())} for row in ROWS]
    return pa.Table.from_pylist(rows, pa.schema(zip(FIELDS, types, strict=True)))
