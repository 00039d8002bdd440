"""The history of a topic from ClickHouse, then the topic, into Postgres tables; on real servers."""

from __future__ import annotations

import itertools
import statistics
import time

import pytest

from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace
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


# SD-01, HY-04
def test_jobs_of_different_length_end_together_and_a_second_run_reads_nothing(
    place: Workspace, history: History, postgres: PostgresServer
) -> None:
    database = postgres.database()
    history.insert(0, 200)
    history.table("short")
    history.insert(0, 5, "short")
    history.produce(1000, 3)
    text = source(history)
    text += text.replace("sources:\n  s:", "  a:").replace("table_name: blocks", "table_name: short")
    text += "sinks:\n  out: {type: postgres, from: s, schema: public, table: t, batch_size: 1}\n"
    text += "  out_a: {type: postgres, from: a, schema: public, table: ta, batch_size: 1}\n"
    settings = history.settings() | database.settings() | database.state_settings()
    settings |= {"JOB_MODE": "true", "CHECKPOINT_INTERVAL_SEC": 1}
    first = place.write(text).run(**settings).succeeded()
    assert "WARN" not in first.stderr, first.stderr
    assert database.rows("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM ta)") == [(200, 5)]
    stored = dict(database.rows("SELECT key, data FROM streamling.state WHERE starts_with(key, 'hybrid')"))
    done = {"current_phase": 1, "completed_phases": [True], "unbounded_offsets": None}
    assert stored == {RECORD: done, "hybrid_source_a_v1": done}
    history.insert(200, 10)
    again = place.run(**settings).succeeded()
    assert "the job was finished by an earlier run: nothing is read" in again.stderr
    assert "nothing new" in again.stderr and again.stderr.count("Epoch finalized") == 0
    # Without job mode the pipeline continues: what the table got since, then the topic.
    place.write(text.replace("batch_size: 1", "batch_size: 100"))
    run = place.start_warm(**(settings | {"JOB_MODE": "false"}))
    run.until(lambda: database.rows("SELECT count(*) FROM t") == [(213,)], "the rest of the table and the topic")
    assert run.stop().code == 0
    assert database.rows("SELECT min(block), max(block) FROM t") == [(0, 1002)]


# HY-05
def test_a_job_reads_many_pages(place: Workspace, history: History, postgres: PostgresServer) -> None:
    database = postgres.database()
    history.insert(0, 3000)
    place.write(source(history) + POSTGRES % ", batch_size: 1")
    settings = history.settings() | database.settings() | database.state_settings()
    place.run(JOB_MODE="true", CHECKPOINT_INTERVAL_SEC=1, CLICKHOUSE_SOURCE__PAGE_SIZE=100, **settings).succeeded()
    assert database.rows("SELECT count(*), count(DISTINCT block) FROM t") == [(3000, 3000)]


# HY-06
def test_a_cursor_counts_although_the_record_of_the_phase_is_lost(
    place: Workspace, history: History, postgres: PostgresServer
) -> None:
    database = postgres.database()
    history.insert(0, 50)
    history.insert(5_000_000, 20_000)
    settings = history.settings() | database.settings() | database.state_settings()
    settings |= {"CLICKHOUSE_SOURCE__SORT_KEY_RANGE": 100, "CHECKPOINT_INTERVAL_SEC": 1}
    start = source(history).replace("table_name: blocks", "table_name: blocks, start_at: '5000000'")
    place.write(start + "sinks:\n  none: {type: blackhole, from: s}\n")
    place.run(JOB_MODE="true", NUM_RECORDS_BEFORE_STOP=800, EPOCH__ROWS=400, **settings).succeeded()
    (cursor,) = database.rows("SELECT data FROM streamling.state WHERE key = 'clickhouse_source:s:v1'")
    assert cursor[0]["args"][0]["value"] > 5_000_000
    database.execute(f"DELETE FROM streamling.state WHERE key = '{RECORD}'")
    place.write(source(history) + POSTGRES % "")
    place.run(NUM_RECORDS_BEFORE_STOP=40, EPOCH__ROWS=100, **settings).succeeded()
    ((least, count),) = database.rows("SELECT min(block), count(*) FROM t")
    assert least >= cursor[0]["args"][0]["value"] and 40 <= count < 1000
    assert history.execute("SELECT count() FROM kafka_offsets").strip() == "0"


# HY-08
def test_checkpoints_keep_their_pace_after_the_hand_over(
    place: Workspace, history: History, postgres: PostgresServer
) -> None:
    database = postgres.database()
    history.insert(0, 3)
    history.produce(100, 5)
    place.write(source(history) + POSTGRES % "")
    settings = history.settings() | database.settings() | database.state_settings()
    query = f"SELECT (data ->> 'offset')::int FROM streamling.state WHERE key = 's:{history.topic}:0'"
    changes: list[float] = []
    with history.kafka.producing(history.topic, (history.message(n) for n in range(200, 10_000)), rate=5):
        run = place.start_warm(CHECKPOINT_INTERVAL_SEC=1, **settings)
        run.until(lambda: database.rows("SELECT to_regclass('streamling.state') IS NOT NULL") == [(True,)], "a state")
        run.until(lambda: database.rows(query), "a position of the topic")
        last, deadline = database.rows(query), time.monotonic() + 60
        while len(changes) < 6 and time.monotonic() < deadline:
            time.sleep(0.25)
            if (now := database.rows(query)) != last:
                last = now
                changes.append(time.monotonic())
        assert run.stop().code == 0
    gaps = [after - before for before, after in itertools.pairwise(changes)]
    assert len(changes) >= 5 and 0.2 <= statistics.median(gaps) <= 3, gaps


# HY-09
def test_wide_integers_of_the_table_keep_their_value(
    place: Workspace,
    clickhouse: ClickHouseServer,
    kafka: KafkaBroker,
    schema_registry: SchemaRegistry,
    postgres: PostgresServer,
) -> None:
    number = {"type": "bytes", "logicalType": "decimal", "precision": 78, "scale": 0}
    history = History(
        clickhouse,
        kafka,
        schema_registry,
        columns="id Int64, value Nullable(UInt128)",
        order="id",
        fields={"id": "long", "value": ["null", number]},
    )
    history.execute(f"INSERT INTO blocks VALUES (1, 1), (2, {10**18}), (3, {10**11}), (4, NULL), (5, {2**128 - 1})")
    database = postgres.database()
    sql = "transforms:\n  q: {type: sql, primary_key: id, sql: 'SELECT id, CAST(value AS TEXT) AS value FROM s'}\n"
    place.write(source(history) + sql + POSTGRES.replace("from: s", "from: q") % "")
    place.run(JOB_MODE="true", **history.settings(), **database.settings()).succeeded()
    assert database.rows("SELECT id, value FROM t ORDER BY id") == [
        (1, "1"),
        (2, "1000000000000000000"),
        (3, "100000000000"),
        (4, None),
        (5, str(2**128 - 1)),
    ]


# SD-03
def test_a_stop_during_the_backfill_drains_and_keeps_the_phase(
    place: Workspace, history: History, postgres: PostgresServer
) -> None:
    database = postgres.database()
    history.insert(0, 500_000)
    place.write(source(history) + POSTGRES % ", batch_size: 200")
    settings = history.settings() | database.settings() | database.state_settings()
    run = place.start_warm(CHECKPOINT_INTERVAL_SEC=1, EPOCH__ROWS=2000, **settings)
    run.until_epochs(2)
    began = time.monotonic()
    assert run.stop().code == 0
    assert time.monotonic() - began < 30
    ((count, least, most),) = database.rows("SELECT count(*), min(block), max(block) FROM t")
    assert 0 < count < 500_000 and (least, most) == (0, count - 1)
    (stored,) = database.rows(f"SELECT data FROM streamling.state WHERE key = '{RECORD}'")
    assert stored[0]["current_phase"] == 0 and stored[0]["bounded_ends"] == ["499999"]
    (cursor,) = database.rows("SELECT data FROM streamling.state WHERE key = 'clickhouse_source:s:v1'")
    assert cursor[0]["args"][0]["value"] == count


def test_a_table_that_grows_during_the_backfill_leaves_no_gap_and_no_double_at_the_seam(
    place: Workspace, history: History
) -> None:
    history.copy(30_000)
    place.write(source(history) + "sinks:\n  out: {type: file, from: s, path: out, format: parquet}\n")
    settings = history.settings() | {"EPOCH__ROWS": 3000}
    with history.copying(rows=50):
        run = place.start_warm(**settings)
        run.until(lambda: "is read to its end" in run.stderr, "the end of the table")
        time.sleep(3)
    run.until(lambda: place.count("out", "parquet") >= history.copied, "all rows")
    assert run.stop().code == 0
    blocks = [row["block"] for row in place.rows("out", "parquet")]
    assert sorted(set(blocks)) == list(range(history.copied))
    # The row at the offset where the topic begins, and at most what came between two queries.
    assert len(blocks) - len(set(blocks)) <= 51
