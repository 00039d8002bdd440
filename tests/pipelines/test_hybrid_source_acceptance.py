"""The history of a topic from ClickHouse, then the topic, into Postgres tables; on real servers."""

from __future__ import annotations

import json
import statistics
import time
from decimal import Decimal

import pytest

from support.avro_frames import framed
from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace, printed
from support.hybrid_samples import History, source
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

POSTGRES = "sinks:\n  out: {type: postgres, from: s, schema: public, table: t%s}\n"
RECORD = "hybrid_source_s_v1"


@pytest.fixture
def history(clickhouse: ClickHouseServer, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> History:
    return History(clickhouse, kafka, schema_registry)


# HY-01
def test_the_table_comes_first_and_then_the_topic(place: Workspace, history: History, postgres: PostgresServer) -> None:
    database = postgres.database()
    history.insert(1, 3)
    history.produce(101, 3)
    place.write(source(history) + POSTGRES % "")
    settings = history.settings() | database.settings() | database.state_settings()
    place.run(NUM_RECORDS_BEFORE_STOP=6, CHECKPOINT_INTERVAL_SEC=1, **settings).succeeded()
    assert database.rows("SELECT block, id, data, timestamp FROM t ORDER BY block") == [
        (n, f"row_{n}", f"data {n}", n * 10) for n in (1, 2, 3, 101, 102, 103)
    ]
    stored = dict(database.rows("SELECT key, data FROM streamling.state WHERE NOT starts_with(key, '__')"))
    assert stored[RECORD] == {"current_phase": 1, "completed_phases": [True], "unbounded_offsets": {}}
    assert stored["clickhouse_source:s:v1"]["sorting_keys"] == ["block", "id"]
    assert stored[f"s:{history.topic}:0"]["offset"] == 3
