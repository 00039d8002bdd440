"""From a topic through Spark into ClickHouse: what is in the table then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from support.avro_frames import framed
from support.clickhouse_server import ClickHouseDatabase, ClickHouseServer
from support.clickhouse_sink_samples import new_table
from support.harness import Finished, Workspace
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]
Change = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def database(clickhouse: ClickHouseServer) -> ClickHouseDatabase:
    return clickhouse.own_database()


class IntoTable:
    """A topic of Avro rows, and a pipeline that writes them to a table."""

    def __init__(
        self, place: Workspace, kafka: KafkaBroker, registry: SchemaRegistry, database: ClickHouseDatabase, fields: str
    ) -> None:
        self._place = place
        self._kafka = kafka
        self._registry = registry
        self.database = database
        self._schema = json.dumps(
            {
                "type": "record",
                "name": "itv",
                "fields": [{"name": n, "type": t} for n, t in (part.split(":") for part in fields.split())],
            }
        )
        self._columns = ", ".join(part.split(":")[0] for part in fields.split())
        self.topic = kafka.topic("in")
        self.table = new_table()
        self._id = registry.register(f"{self.topic}-value", self._schema)

    def run(self, changes: Sequence[Change], stop_at: int, options: str, **settings: object) -> Finished:
        messages = [framed(self._id, self._schema, row, operation) for operation, row in changes]
        self._kafka.produce(self.topic, messages)
        self._place.write(
            f"sources: {{rows: {{type: kafka, topic: {self.topic}}}}}\n"
            f"transforms: {{kept: {{type: sql, primary_key: id, sql: 'SELECT {self._columns} FROM rows'}}}}\n"
            f"sinks: {{out: {{type: clickhouse, from: kept, table: {self.table}, primary_key: id{options}}}}}\n"
        )
        addresses = {
            "KAFKA_SOURCE__BROKERS": self._kafka.brokers,
            "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": self._registry.url,
            **self.database.settings(),
        }
        limit = {"NUM_RECORDS_BEFORE_STOP": stop_at, "APPLICATION_ID": self.topic}
        return self._place.run(**addresses, **limit, **settings).succeeded()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.database.rows(query.format(t=self.table))


@pytest.fixture
def into(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, database: ClickHouseDatabase
) -> IntoTable:
    return IntoTable(place, kafka, schema_registry, database, "id:long text:string value:double")


def itv(id_: int, text: str = "", value: float = 0.5) -> dict[str, Any]:
    return {"id": id_, "text": text or f"text {id_}", "value": value}


def test_a_table_is_created_with_a_mark_for_deletes(into: IntoTable) -> None:
    """CS-01 and CS-05."""
    into.run([("c", itv(n)) for n in range(10)], 10, ", compression: gzip")
    assert into.rows("SELECT id, text, value FROM {t} ORDER BY id") == [(n, f"text {n}", 0.5) for n in range(10)]
    assert into.rows(
        "SELECT type FROM system.columns WHERE database = currentDatabase() AND table = '{t}' AND name = 'is_deleted'"
    ) == [("UInt8",)]
    assert into.rows("SELECT count() FROM {t} WHERE is_deleted = 1") == [(0,)]


def test_several_batches(into: IntoTable) -> None:
    """CS-03."""
    into.run([("c", itv(n)) for n in range(25)], 25, ", batch_size: 5, batch_flush_interval: 100ms, compression: lz4")
    assert into.rows("SELECT count(), uniqExact(id) FROM {t}") == [(25, 25)]


def test_an_override_makes_times_of_seconds(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, database: ClickHouseDatabase
) -> None:
    """CS-04."""
    into = IntoTable(place, kafka, schema_registry, database, "id:long created_at:long updated_at:long")
    rows = [{"id": n, "created_at": 1_700_000_000 + 3600 * n, "updated_at": 1_700_000_000 + 7200 * n} for n in range(5)]
    override = "{created_at: DateTime64(3), updated_at: 'DateTime64(3) CODEC(Delta, ZSTD)'}"
    into.run([("c", row) for row in rows], 5, f", schema_override: {override}")
    names = ("id", "toUnixTimestamp(created_at)", "toUnixTimestamp(updated_at)")
    assert into.rows(f"SELECT {', '.join(names)} FROM {{t}} ORDER BY id") == [tuple(row.values()) for row in rows]
    types = into.rows(
        "SELECT type FROM system.columns WHERE database = currentDatabase() AND table = '{t}' AND name LIKE '%_at'"
    )
    assert types == [("DateTime64(3)",)] * 2


def test_of_a_key_in_a_batch_the_last_row_is_written(into: IntoTable) -> None:
    """CS-06."""
    changes = [("c", itv(1, "first_1")), ("c", itv(2, "first_2")), ("u", itv(1, "updated_1")), ("c", itv(3, "first_3"))]
    into.run(changes, 2, "")
    assert into.rows("SELECT count() FROM {t} FINAL") == [(3,)]
    assert into.rows("SELECT text FROM {t} WHERE id = 1") == [("updated_1",)]


def test_deletes_are_hidden_by_final(into: IntoTable) -> None:
    """CS-07."""
    into.run([("c", itv(1)), ("c", itv(2)), ("c", itv(3)), ("d", itv(1)), ("d", itv(2))], 3, "")
    assert into.rows("SELECT id, is_deleted FROM {t} FINAL") == [(3, 0)]


def test_updates_without_append_only_mode(into: IntoTable) -> None:
    """CS-09."""
    changes = [("c", itv(1, "original")), ("c", itv(2)), ("u", itv(1, "updated"))]
    into.run(changes, 3, ", append_only_mode: false, batch_size: 1", RECORD_BATCH_SIZE=1)
    assert into.rows("SELECT id, text FROM {t} FINAL ORDER BY id") == [(1, "updated"), (2, "text 2")]
    again = into.run([("d", itv(2))], 1, ", append_only_mode: false")
    assert into.rows("SELECT id FROM {t} FINAL") == [(1,)]
    assert "created table" not in again.stderr


def test_rejected_rows_are_dead_letters(into: IntoTable, place: Workspace) -> None:
    into.database.execute(
        f"CREATE TABLE {into.table} (id Int8, text UUID, value Float64, is_deleted UInt8) ENGINE = ReplacingMergeTree"
        " ORDER BY id SETTINGS non_replicated_deduplication_window = 1000"
    )
    uuid = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
    changes = [*(("c", itv(n, uuid)) for n in range(120, 132)), ("c", itv(7, "wrong"))]
    options = ", on_error: dead_letter, dead_letter: {type: file, path: letters}"
    into.run(changes, 8, options)
    assert into.rows("SELECT id FROM {t} ORDER BY id") == [(n,) for n in range(120, 128)]
    letters = [json.loads(line) for file in place.directory.glob("letters/*") for line in file.read_text().splitlines()]
    assert sorted(letter["row"]["id"] for letter in letters) == [7, 128, 129, 130, 131]
