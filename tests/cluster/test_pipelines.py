"""Pipelines on a Spark cluster whose workers have neither our package nor the driver's directory."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.clickhouse_server import ClickHouseServer
from support.harness import Row, Workspace, workspace
from support.http_server import Answer, Request, recording_server
from support.hybrid_samples import History
from support.hybrid_samples import source as hybrid_source
from support.kafka_broker import KafkaBroker
from support.kafka_sink_samples import committed, rows_of
from support.postgres_server import Database, PostgresServer
from support.schema_registry import SchemaRegistry
from support.spark_cluster import SparkCluster
from support.warm_engine import WarmEngine

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

EXAMPLES = Path(__file__).parents[2] / "examples"
# Everything is read, and where a sink can also written, by executors.
ON_EXECUTORS = {"EPOCH__DRIVER_ROWS": 0}

OWN = '''
import os
import time

import pyarrow as pa

from streamling.plugin import TransformPlugin, register_transform, register_udf


@register_transform("acme.double")
class Double(TransformPlugin):
    def output_schema(self):
        *columns, operation = self.context.input_schema
        return pa.schema([*columns, pa.field("twice", pa.int64()), operation])

    def process_batch(self, batch):
        *columns, operation = batch.columns
        twice = pa.array([2 * n for n in batch.column("id").to_pylist()], pa.int64())
        return pa.RecordBatch.from_arrays([*columns, twice, operation], schema=self.output_schema())


def place(ids):
    """Where this is computed, and from which file."""
    return pa.array([f"{os.getcwd()} {__file__}"] * len(ids))


def slowly(ids):
    """Leaves word in the executor's directory when it begins and when it ends."""
    with open("calls", "a") as calls:
        print("begun", file=calls, flush=True)
        time.sleep(1)
        print("ended", file=calls, flush=True)
    return ids


register_udf("acme_place", [pa.int64()], pa.string(), place)
register_udf("acme_slowly", [pa.int64()], pa.int64(), slowly)
'''


def write_plugin(place: Workspace) -> str:
    (place.directory / "own.py").write_text(OWN)
    return "own.py"


def test_the_demo_gives_what_it_gives_without_a_cluster(
    place: Workspace, tmp_path_factory: pytest.TempPathFactory, warm_engine: WarmEngine
) -> None:
    with workspace(tmp_path_factory.mktemp("here"), warm_engine) as here:
        (lines, rows, letters), (lines_here, rows_here, letters_here) = _demo(place), _demo(here)
    assert (rows, letters) == (rows_here, letters_here)
    assert (len(rows) > 90_000, len(letters)) == (True, 2)
    assert lines == lines_here > 0


@pytest.mark.servers
def test_executors_read_a_topic_and_write_files_with_the_plugins_of_the_driver(
    place: Workspace, cluster: SparkCluster, kafka: KafkaBroker
) -> None:
    topic = kafka.topic("numbers", partitions=2)
    kafka.produce(topic, [json.dumps({"id": n}) for n in range(50_000)])
    place.write(f"""
sources:
  numbers: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64}}, primary_key: id}}
transforms:
  placed: {{type: sql, primary_key: id, sql: "SELECT id, acme_place(id) AS place FROM numbers WHERE id % 5 <> 2"}}
  doubled: {{type: acme.double, from: placed, primary_key: id}}
sinks:
  placed_files: {{type: file, from: placed, path: placed, format: parquet}}
  doubled_files: {{type: file, from: doubled, path: doubled, format: parquet}}
""")
    child = place.start_warm(PLUGIN__PATH=write_plugin(place), KAFKA_SOURCE__BROKERS=kafka.brokers, **ON_EXECUTORS)
    wanted = [n for n in range(50_000) if n % 5 != 2]
    for name in ("placed", "doubled"):
        child.until(lambda name=name: place.count(name, "parquet") >= len(wanted), f"all rows in {name}")
    processes: dict[int, Path] = {}
    for process in cluster.python_processes():
        with suppress(psutil.Error):  # it has just ended
            processes[process.pid] = Path(process.cwd())
    child.stop().succeeded()
    rows = place.rows("doubled", "parquet")
    assert sorted((row["id"], row["twice"]) for row in rows) == [(n, 2 * n) for n in wanted]
    assert sorted(row["id"] for row in place.rows("placed", "parquet")) == wanted
    works = [cluster.work_directory(0), cluster.work_directory(1)]
    assert {work for work in works if any(cwd.is_relative_to(work) for cwd in processes.values())} == set(works)
    for text in {str(row["place"]) for row in rows}:
        directory, file = text.split(" ")
        assert any(Path(directory).is_relative_to(work) for work in works)
        assert Path(file).is_relative_to(directory)


@pytest.mark.servers
def test_executors_read_ranges_of_a_clickhouse_table_into_others(
    place: Workspace, clickhouse: ClickHouseServer
) -> None:
    database = clickhouse.own_database()
    rows = "SELECT number - 20000 AS k, toUInt256(number) AS n FROM numbers(40000)"
    database.execute(f"CREATE TABLE t ENGINE = MergeTree ORDER BY k AS {rows}")
    place.write("""
sources:
  old: {type: clickhouse, table_name: t, filter: k != 7}
transforms:
  sums: {type: sql, primary_key: k, sql: "SELECT k, CAST(n AS BIGINT) + 1 AS n FROM old"}
sinks:
  files: {type: file, from: sums, path: out, format: parquet}
  copy: {type: clickhouse, from: sums, table: copy, primary_key: k, deduplicate: false, parallelism: 2}
""")
    place.run(**ON_EXECUTORS, **database.settings("SOURCE"), **database.settings("SINK")).succeeded()
    wanted = [(n - 20_000, n + 1) for n in range(40_000) if n != 20_007]
    assert sorted((row["k"], row["n"]) for row in place.rows("out", "parquet")) == wanted
    assert database.rows("SELECT k, n FROM copy ORDER BY k") == wanted


@pytest.mark.servers
def test_executors_read_a_table_and_then_its_topic(
    place: Workspace, clickhouse: ClickHouseServer, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    history = History(clickhouse, kafka, schema_registry)
    history.copy(30_000)
    history.produce(30_000, 5000)
    place.write(hybrid_source(history) + "sinks:\n  files: {type: file, from: s, path: out, format: parquet}\n")
    run = place.start_warm(**ON_EXECUTORS, **history.settings())
    run.until(lambda: place.count("out", "parquet") >= 35_001, "the table and the topic")
    run.stop().succeeded()
    # The last row of the table is the first one of the topic.
    assert Counter(row["block"] for row in place.rows("out", "parquet")) == Counter([*range(35_000), 29_999])


@pytest.mark.servers
def test_a_table_and_a_topic_are_what_the_topic_says(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    topic, database = kafka.topic("orders", partitions=2), postgres.database()
    kafka.produce(topic, [json.dumps({"id": n, "total": 3 * n}) for n in range(30_000)])
    place.write(f"""
sources:
  orders:
    {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64, total: int64}}, primary_key: id}}
transforms:
  large: {{type: sql, primary_key: id, sql: "SELECT id, total + 1 AS total FROM orders WHERE id >= 100"}}
sinks:
  table: {{type: postgres, from: large, schema: public, table: orders, primary_key: id}}
  copy: {{type: kafka, from: large, topic: {topic}.large, data_format: json}}
""")
    brokers = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SINK__BROKERS": kafka.brokers}
    child = place.start_warm(**brokers, **database.settings(), **ON_EXECUTORS)
    child.until(lambda: _count(database) == 29_900, "all keys in the table")
    child.until(lambda: child.epochs >= 1, "an epoch")
    child.stop().succeeded()
    rows = database.rows("SELECT id, total FROM public.orders ORDER BY id")
    assert rows == [(n, 3 * n + 1) for n in range(100, 30_000)]
    messages = rows_of(committed(kafka.brokers, f"{topic}.large"))
    assert sorted((row["id"], row["total"]) for row in messages) == rows


def test_the_modules_of_a_python_function_are_sent_to_the_executors(place: Workspace, cluster: SparkCluster) -> None:
    (place.directory / "shaping.py").write_text(
        "import os\nfrom rates import RATE\n\n\ndef shape(row):\n"
        "    return None if row['id'] % 3 else {'id': row['id'] * RATE, 'place': os.getcwd()}\n"
    )
    (place.directory / "rates.py").write_text("RATE = 2\n")
    place.write("""
sources:
  numbers: {type: generator, rows: 3000, primary_key: id}
transforms:
  shaped:
    {type: python, from: numbers, primary_key: id, schema: {id: int64, place: string}, function: "shaping:shape"}
sinks:
  files: {type: file, from: shaped, path: files, format: parquet}
""")
    place.run(**ON_EXECUTORS).succeeded()
    rows = place.rows("files", "parquet")
    assert sorted(row["id"] for row in rows) == [2 * n for n in range(0, 3000, 3)]
    works = [cluster.work_directory(0), cluster.work_directory(1)]
    for directory in {str(row["place"]) for row in rows}:
        assert any(Path(directory).is_relative_to(work) for work in works)


def test_a_script_runs_where_the_rows_are(place: Workspace) -> None:
    place.write("""
sources:
  numbers: {type: generator, rows: 60000, primary_key: id}
transforms:
  shaped:
    type: script
    from: numbers
    language: typescript
    primary_key: id
    schema: {id: int64, label: string, exact: int64}
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
    script: |
      function process(row: any) {
        if (row.id === 777) throw new Error("no");
        if (row.id % 3 === 0) return null;
        return { id: row.id, label: `n${row.id}`, exact: 9007199254740993n + BigInt(row.id) };
      }
sinks:
  files: {type: file, from: shaped, path: files, format: parquet}
""")
    place.run(**ON_EXECUTORS).succeeded()
    rows = place.rows("files", "parquet")
    wanted = [(n, f"n{n}", 2**53 + 1 + n) for n in range(60_000) if n % 3 and n != 777]
    assert sorted((row["id"], row["label"], row["exact"]) for row in rows) == wanted
    files = (place.directory / "letters").glob("*.jsonl")
    assert [json.loads(line)["row"]["id"] for file in files for line in file.read_text().splitlines()] == [777]


def test_lookups_are_sent_to_the_executors(place: Workspace) -> None:
    """A small one and a large one; executors have neither of the files."""
    (place.directory / "countries.csv").write_text("code,title\n0,Germany\n1,Austria\n")
    names = pa.table({"id": pa.array(range(100_000)), "name": [f"the name of customer {i}" for i in range(100_000)]})
    pq.write_table(names, place.directory / "customers.parquet")
    place.write(
        """\
sources:
  orders: {type: generator, rows: 50000, primary_key: id, columns: {id: id, customer: id * 3, country: id % 3}}
transforms:
  countries: {type: lookup, path: countries.csv, format: csv, primary_key: code}
  customers: {type: lookup, path: customers.parquet, format: parquet, primary_key: id}
  named:
    type: sql
    primary_key: id
    sql: >
      SELECT o.id, c.name, t.title FROM orders o
      LEFT JOIN customers c ON o.customer = c.id LEFT JOIN countries t ON o.country = t.code
sinks:
  out: {type: file, from: named, path: out, format: parquet}
"""
    )
    place.run(**ON_EXECUTORS).succeeded()
    rows = place.rows("out", "parquet")
    assert sorted(row["id"] for row in rows) == list(range(50_000))
    titles = ("Germany", "Austria", None)
    for row in rows[::997]:
        expected = f"the name of customer {3 * row['id']}" if 3 * row["id"] < 100_000 else None
        assert (row["name"], row["title"]) == (expected, titles[row["id"] % 3])


def test_executors_call_an_endpoint_and_the_driver_another(place: Workspace) -> None:
    def doubled(request: Request) -> Answer:
        return Answer(body=json.dumps([{**row, "twice": 2 * row["id"]} for row in request.rows]).encode())

    with recording_server(doubled) as server, recording_server() as hook:
        place.write(f"""
sources:
  numbers: {{type: generator, rows: 5000, primary_key: id}}
transforms:
  asked: {{type: handler, from: numbers, primary_key: id, url: '{server.url}', schema_override: {{twice: int64}},
    batch_size: 100, secret_name: crm}}
sinks:
  told: {{type: webhook, from: asked, url: '{hook.url}'}}
""")
        secret = {"HTTP_SECRET_HEADER__CRM": "X-Crm", "HTTP_SECRET_VALUE__CRM": "s3cret-Of-Crm"}
        place.run(**secret, **ON_EXECUTORS).succeeded()
        assert {request.headers["x-crm"] for request in server.requests} == {"s3cret-Of-Crm"}
        assert [(row["id"], row["twice"]) for row in hook.rows] == [(n, 2 * n) for n in range(5000)]


EPOCH_ROWS = 60_000


@pytest.mark.faults
def test_workers_that_are_killed_cost_no_row(place: Workspace, cluster: SparkCluster) -> None:
    place.write(f"""
sources:
  numbers: {{type: generator, rows: 100000000, primary_key: id}}
transforms:
  chosen: {{type: sql, primary_key: id, sql: "SELECT acme_slowly(id) AS id FROM numbers WHERE id % 5 <> 2"}}
sinks:
  files: {{type: file, from: chosen, path: files, format: parquet, batch_size: {EPOCH_ROWS}}}
""")
    child = place.start_warm(PLUGIN__PATH=write_plugin(place), EPOCH__ROWS=EPOCH_ROWS, **ON_EXECUTORS)
    for victims in ([0], [1], [0, 1]):
        cut_off = _unfinished(cluster, victims)
        child.until(lambda v=victims, c=cut_off: _unfinished(cluster, v) - c, f"a task on {victims}")
        for number in victims:
            cluster.kill_worker(number)
        for number in victims:
            cluster.start_worker(number)
        child.until_epochs(child.epochs + 1)
    cluster.wait_for_workers()
    child.stop().succeeded()
    found = Counter(row["id"] for row in place.rows("files", "parquet"))
    assert found == Counter(n for n in range(child.epochs * EPOCH_ROWS) if n % 5 != 2)


def _unfinished(cluster: SparkCluster, workers: list[int]) -> set[tuple[Path, int]]:
    """The calls of executors of these workers that are under way, or were cut off."""
    files = [file for number in workers for file in cluster.work_directory(number).glob("*/*/calls")]
    lines = {file: len(file.read_text().splitlines()) for file in files}
    return {(file, count) for file, count in lines.items() if count % 2}


def _demo(place: Workspace) -> tuple[int, list[Row], list[tuple[Any, ...]]]:
    """The lines that the demo has printed, the rows that it has written, and its letters."""
    shutil.copytree(EXAMPLES, place.directory / "examples")
    done = place.run("run", "examples/demo.yaml", "--config", "examples/demo.config.yaml").succeeded()
    rows = sorted(place.rows("demo-out/orders", "parquet"), key=_identity)
    return len(done.stdout.splitlines()), rows, _letters(place.directory / "demo-out" / "dead-letters")


def _identity(row: Row) -> tuple[Any, ...]:
    return row["channel"], row["order_id"]


def _letters(directory: Path) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for file in directory.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted((line["source"]["row"], line["reason_text"]) for line in lines)


def _count(database: Database) -> int:
    ((there,),) = database.rows("SELECT to_regclass('public.orders') IS NOT NULL")
    return int(database.rows("SELECT count(*) FROM public.orders")[0][0]) if there else 0
