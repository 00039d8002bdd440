"""Hybrid sources with several phases, with files, with filters, and by several processes; on real servers."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.avro_frames import framed
from support.clickhouse_server import ClickHouseServer
from support.harness import Row, Workspace
from support.hybrid_samples import History, source
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

OUT = "sinks:\n  out: {type: file, from: s, path: out, format: parquet, batch_flush_interval: 100ms}\n"


@pytest.fixture
def history(clickhouse: ClickHouseServer, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> History:
    return History(clickhouse, kafka, schema_registry)


def blocks(place: Workspace) -> list[int]:
    return [row["block"] for row in place.rows("out", "parquet")]


def until_rows(place: Workspace, count: int, **settings: object) -> None:
    run = place.start_warm(**settings)
    run.until(lambda: place.count("out", "parquet") >= count, f"{count} rows")
    assert run.stop().code == 0


def write_json(path: Path, *numbers: int) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = ({"block": n, "id": f"row_{n}", "data": f"data {n}", "timestamp": n * 10} for n in numbers)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_tables_and_files_come_in_order_and_each_keeps_its_own_position(place: Workspace, history: History) -> None:
    history.insert(0, 10)
    history.table("later")
    history.insert(100, 10, "later")
    write_json(place.directory / "old" / "a.jsonl", 50, 51)
    history.produce(200, 3)
    phases = source(history, "blocks", "later").replace(
        "      - {source_type: clickhouse, table_name: later}",
        "      - {source_type: file, path: old, format: jsonl}\n      - {source_type: clickhouse, table_name: later}",
    )
    place.write(phases + OUT)
    until_rows(place, 25, **history.settings())
    assert blocks(place) == [*range(10), 50, 51, *range(100, 110), 200, 201, 202]
    state = place.state()
    assert state["clickhouse_source:s:v1"]["args"][0]["value"] == 10
    assert state["clickhouse_source:s_bounded_2:v1"]["args"][0]["value"] == 110
    assert "\ns_bounded_1:bounded_progress\t" in place.run("state", "list").stdout
    assert state["hybrid_source_s_v1"]["completed_phases"] == [True, True, True]
    # A restart goes on with the topic, whatever the tables have got since.
    history.insert(500, 5)
    history.produce(203, 2)
    until_rows(place, 27, **history.settings())
    assert blocks(place)[-2:] == [203, 204]


def test_every_phase_has_its_own_filter(place: Workspace, history: History) -> None:
    history.insert(0, 10)
    history.produce(0, 10)
    text = source(history, unbounded=", filter: 'block >= 7'")
    text = text.replace("table_name: blocks", "table_name: blocks, filter: 'is_deleted = 0 AND block % 2 = 0'")
    place.write(text + OUT)
    until_rows(place, 8, **history.settings())
    assert blocks(place) == [0, 2, 4, 6, 8, 7, 8, 9]


def test_files_that_keep_coming_follow_the_table(place: Workspace, history: History) -> None:
    history.insert(0, 4)
    write_json(place.directory / "new" / "a.jsonl", 10)
    text = source(history)
    unbounded = next(line for line in text.splitlines() if "unbounded_source" in line)
    files = "    unbounded_source: {source_type: file, path: new, format: jsonl, poll_interval: 200ms}"
    place.write(text.replace(unbounded, files) + OUT)
    settings = history.clickhouse.settings(history.database)
    run = place.start_warm(**settings)
    run.until(lambda: place.count("out", "parquet") >= 5, "the first rows")
    write_json(place.directory / "new" / "b.jsonl", 11, 12)
    run.until(lambda: place.count("out", "parquet") >= 7, "the second file")
    assert run.stop().code == 0
    assert blocks(place) == [0, 1, 2, 3, 10, 11, 12]
    assert "\ns:watermark\t" in place.run("state", "list").stdout


@pytest.mark.parametrize(
    "columns",
    [
        "topic String, partition UInt8, offset Int32",
        "topic LowCardinality(String), partition Nullable(Int64), offset UInt64",
        "topic String, partition Int16, offset Int128",
    ],
)
def test_the_topic_begins_at_the_greatest_offset_of_each_partition(
    place: Workspace,
    clickhouse: ClickHouseServer,
    kafka: KafkaBroker,
    schema_registry: SchemaRegistry,
    columns: str,
) -> None:
    history = History(clickhouse, kafka, schema_registry, offsets=columns)
    history.insert(0, 4)
    history.produce(0, 8)
    name = history.topic_name
    history.execute(f"INSERT INTO kafka_offsets VALUES ('{name}', 0, 1), ('{name}', 0, 3), ('other', 0, 7)")
    place.write(source(history) + OUT)
    until_rows(place, 9, **history.settings())
    assert blocks(place) == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert place.state()["hybrid_source_s_v1"]["unbounded_offsets"] == {"0": 3}


def test_a_topic_that_begins_right_after_the_offset_has_lost_nothing(place: Workspace, history: History) -> None:
    history.copy(6)
    history.produce(6, 2)
    history.kafka.expire(history.topic, 6)
    place.write(source(history) + OUT)
    until_rows(place, 8, **history.settings())
    assert blocks(place) == list(range(8))


def test_a_topic_that_has_lost_rows_since_ends_the_run(place: Workspace, history: History) -> None:
    history.copy(6)
    history.produce(6, 4)
    history.kafka.expire(history.topic, 8)
    place.write(source(history) + OUT)
    failed = place.run(**history.settings()).failed()
    assert "OFFSETS_GONE" in failed.stderr
    assert blocks(place) == list(range(6))


def test_latest_is_the_end_of_the_topic_before_the_backfill(place: Workspace, history: History) -> None:
    history.insert(0, 3000)
    history.produce(5000, 3)
    place.write(source(history, unbounded=", start_at: latest") + OUT)
    run = place.start_warm(EPOCH__ROWS=500, **history.settings())
    run.until_epochs(1)
    history.produce(6000, 2)
    run.until(lambda: place.count("out", "parquet") >= 3002, "all rows")
    assert run.stop().code == 0
    assert sorted(blocks(place)) == [*range(3000), 6000, 6001]


def test_the_example_runs_with_the_tables_of_its_page(
    place: Workspace,
    clickhouse: ClickHouseServer,
    kafka: KafkaBroker,
    schema_registry: SchemaRegistry,
    postgres: PostgresServer,
) -> None:
    """The statements are those of the page; only the topic has another name here."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "nodes" / "hybrid.md").read_text()
    topic, source_database, database = kafka.topic("live"), clickhouse.database(), postgres.database()
    statements = re.findall(r'^clickhouse "(.+?)"$', page, re.DOTALL | re.MULTILINE)
    assert len(statements) == 4
    for statement in statements:
        clickhouse.execute(statement.replace("live_orders", topic), database=source_database)
    schema = (root / "examples" / "data" / "order.avsc").read_text()
    id_ = schema_registry.register(f"{topic}-value", schema)
    events = [json.loads(line) for line in (root / "examples" / "data" / "order_events.jsonl").read_text().splitlines()]
    kafka.produce(topic, (framed(id_, schema, order(event), event["_gs_op"].replace("i", "c")) for event in events))
    place.write((root / "examples" / "backfill_then_live.yaml").read_text().replace("live_orders", topic))
    run = place.start_warm(
        KAFKA_SOURCE__BROKERS=kafka.brokers,
        KAFKA_SOURCE__SCHEMA_REGISTRY_URL=schema_registry.url,
        **clickhouse.settings(source_database),
        **database.settings(),
    )
    run.until(lambda: database.rows("SELECT to_regclass('shop.order_history') IS NOT NULL") == [(True,)], "the table")
    query = "SELECT customer, total FROM shop.order_history WHERE id = 4"
    run.until(lambda: database.rows(query) == [("Dia", Decimal("77.77"))], "the topic")
    assert run.stop().code == 0
    ((count,),) = database.rows("SELECT count(*) FROM shop.order_history WHERE id > 10")
    assert count == 99_990


def order(event: Row) -> Row:
    fields = {name: value for name, value in event.items() if name != "_gs_op"}
    return fields | {"total": Decimal(event["total"]), "placed_at": datetime.fromisoformat(event["placed_at"])}


def test_of_two_processes_one_reads_the_table_and_both_share_the_topic(
    place: Workspace,
    clickhouse: ClickHouseServer,
    kafka: KafkaBroker,
    schema_registry: SchemaRegistry,
    postgres: PostgresServer,
) -> None:
    history = History(clickhouse, kafka, schema_registry, partitions=2)
    database = postgres.database()
    history.insert(0, 2000)
    place.write(source(history) + "sinks:\n  out: {type: postgres, from: s, schema: public, table: t}\n")
    settings = history.settings() | database.settings() | database.state_settings()
    settings |= {"KAFKA_SOURCE__CONSUMER_GROUP_ID": history.topic, "KAFKA_SOURCE__SESSION_TIMEOUT_MS": 6000}
    settings |= {"EPOCH__ROWS": 300}
    both = [place.start(spark=False, **settings) for _ in range(2)]
    for child in both:
        child.until(lambda child=child: "assigned partitions" in child.stderr, "partitions")
    # Whoever reads the table is killed in the middle of it.
    until = time.monotonic() + 60
    while not any(child.epochs for child in both) and time.monotonic() < until:
        time.sleep(0.05)
    reader = next(child for child in both if child.epochs)
    other = both[1 - both.index(reader)]
    assert other.epochs == 0
    reader.process.kill()
    reader.process.wait(10)
    history.produce(10_000, 400)
    other.until(lambda: database.rows("SELECT count(*) FROM t") == [(2400,)], "all rows")
    third = place.start(spark=False, **settings)
    third.until(lambda: "assigned partitions" in third.stderr, "a partition of the topic")
    history.produce(20_000, 400)
    for child in (other, third):
        child.until(lambda: database.rows("SELECT count(*) FROM t") == [(2800,)], "all rows")
        child.process.terminate()
        child.wait().succeeded()
    assert database.rows("SELECT count(DISTINCT block), min(block), max(block) FROM t") == [(2800, 0, 20_399)]


def test_a_preview_shows_all_phases_and_joins_no_group(place: Workspace, history: History) -> None:
    history.insert(0, 10)
    history.produce(200, 3)
    place.write(source(history, "blocks") + OUT)
    group = "previewed_group"
    report = place.run(
        "preview", "--format", "json", "--rows", "20", KAFKA_SOURCE__CONSUMER_GROUP_ID=group, **history.settings()
    )
    (node,) = json.loads(report.succeeded().stdout)["nodes"]
    assert [row["block"] for row in node["rows"]] == [*range(10), 200, 201, 202]
    groups = AdminClient({"bootstrap.servers": history.kafka.brokers}).list_consumer_groups().result(20).valid
    assert not [found.group_id for found in groups if group in found.group_id]
    assert not (place.directory / "state.db").exists()
