"""`streamling dev` from the outside: servers, messages and settings, as a user at a shell uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import streamling
from streamling.clients.clickhouse import ClickHouse
from streamling.dev.processes import free_ports
from streamling.dev.stack import Stack
from streamling.spec.settings import load_settings
from streamling.spec.settings.blocks import BackendType, SslMode
from support.clickhouse_server import ClickHouseServer
from support.kafka_broker import KafkaBroker
from support.postgres_server import Database, PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers

SOURCE = Path(streamling.__file__).parents[1]
TIMEOUT_S = 120.0
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 18}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
ROWS = [
    '{"id": 1, "name": "Ann", "price": 12.345678901234567890, "at": "2024-05-01T10:00:00Z", "_gs_op": "i"}',
    '{"id": 2, "price": "0.5", "at": 1700000000000, "_gs_op": "d"}',
]


def dev(directory: Path, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamling.cli.main", "dev", *arguments, "--directory", str(directory)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        cwd=directory.parent,
    )


def succeeded(directory: Path, *arguments: str, stdin: str = "") -> str:
    finished = dev(directory, *arguments, stdin=stdin)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def failed(directory: Path, *arguments: str, stdin: str = "") -> str:
    finished = dev(directory, *arguments, stdin=stdin)
    assert finished.returncode == 1
    assert "Streamling Error" in finished.stderr
    assert "Traceback" not in finished.stderr
    return finished.stderr


def shown(directory: Path, topic: str, *arguments: str) -> list[dict[str, Any]]:
    lines = succeeded(directory, "tail", topic, "--format", "json", *arguments).splitlines()
    return [json.loads(line) for line in lines]


def new_topic() -> str:
    return f"orders-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def here(kafka: KafkaBroker, shared_stack: Stack) -> Path:
    """The directory of a running broker."""
    return shared_stack.directory


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A directory in which a test may start and kill servers of its own."""
    yield tmp_path / "dev"
    dev(tmp_path / "dev", "down", "--purge")


# Messages


def test_avro_rows_go_in_and_come_out_with_key_headers_and_all_digits(
    here: Path, schema_registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic = new_topic()
    (tmp_path / "orders.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "rows.jsonl").write_text("\n".join(ROWS))
    words = ["--key", "id", "--op-column", "_gs_op", "--header", "origin=test", "--partitions", "2"]
    said = succeeded(
        here, "produce", topic, str(tmp_path / "rows.jsonl"), "--avro", str(tmp_path / "orders.avsc"), *words
    )
    assert said == f"sent 2 messages to {topic}\n"
    found = sorted(shown(here, topic), key=lambda message: message["key"])
    assert [m["headers"] for m in found] == [[["origin", "test"], ["dbz.op", op]] for op in ("c", "d")]
    assert found[0]["value"]["at"] == "2024-05-01T10:00:00Z"
    assert found[1]["value"]["name"] is None
    assert {m["format"] for m in found} == {"avro"}
    assert {m["schema_id"] for m in found} != {None}
    text = succeeded(here, "tail", topic)
    assert '"price":12.345678901234567890' in text
    assert "key=1  origin=test  dbz.op=c  {" in text


def test_a_topic_is_read_from_its_end_or_from_its_beginning(here: Path) -> None:
    topic = new_topic()
    succeeded(here, "produce", topic, "-", stdin="\n".join(f'{{"n": {n}}}' for n in range(30)))
    assert [m["value"]["n"] for m in shown(here, topic)] == list(range(20, 30))
    assert [m["value"]["n"] for m in shown(here, topic, "--limit", "3")] == [27, 28, 29]
    assert [m["value"]["n"] for m in shown(here, topic, "--from-beginning")] == list(range(30))
    assert [m["value"]["n"] for m in shown(here, topic, "--from-beginning", "--limit", "2")] == [0, 1]


def test_following_shows_what_comes_and_ends_after_the_limit(here: Path) -> None:
    topic = new_topic()
    succeeded(here, "produce", topic, "-", stdin='{"n": 1}')
    command = [sys.executable, "-m", "streamling.cli.main", "dev", "tail", topic, "--follow", "--limit", "3"]
    following = subprocess.Popen(
        [*command, "--directory", str(here)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert following.stdout is not None
    assert following.stdout.readline().endswith('{"n": 1}\n')
    succeeded(here, "produce", topic, "-", stdin='{"n": 2}\n{"n": 3}\n{"n": 4}')
    out, _ = following.communicate(timeout=TIMEOUT_S)
    assert [line.split("  ")[-1] for line in out.splitlines()] == ['{"n": 2}', '{"n": 3}']
    assert following.returncode == 0


def test_bad_lines_files_topics_and_schemas_are_user_errors(here: Path, tmp_path: Path) -> None:
    topic = new_topic()
    assert "line 2 of standard input" in failed(here, "produce", topic, "-", stdin='{"n": 1}\nnonsense')
    assert "'no.jsonl' cannot be read" in failed(here, "produce", "never-made", "no.jsonl")
    assert "there is no topic 'never-made'" in failed(here, "tail", "never-made")
    (tmp_path / "bad.avsc").write_text("{}")
    assert "SCHEMA_UNUSABLE" in failed(here, "produce", topic, "-", "--avro", str(tmp_path / "bad.avsc"))
    assert dev(here, "produce", topic, "-", "--header", "nonsense").returncode == 2


# Servers


def test_the_variables_lead_pipelines_to_the_servers(
    here: Path, kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    variables = json.loads(succeeded(here, "env", "--format", "json"))
    assert {name: value for name, value in variables.items() if "__KAFKA_" in name} == {
        **{f"STREAMLING__KAFKA_{role}__BROKERS": kafka.brokers for role in ("SOURCE", "SINK")},
        **{f"STREAMLING__KAFKA_{role}__SCHEMA_REGISTRY_URL": schema_registry.url for role in ("SOURCE", "SINK")},
    }
    shell = f"eval '{succeeded(here, 'env')}'; echo $STREAMLING__KAFKA_SOURCE__BROKERS"
    assert subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout.strip() == kafka.brokers


def test_the_variables_lead_sinks_to_postgres_and_do_not_move_the_state(
    postgres: PostgresServer, shared_stack: Stack, tmp_path: Path
) -> None:
    variables = json.loads(succeeded(shared_stack.directory, "env", "--format", "json"))
    assert "STREAMLING__STATE_BACKEND__BACKEND_TYPE" not in variables
    settings = load_settings(config=None, environ=variables, cwd=tmp_path).settings
    sink, state = settings.postgres_sink, settings.state_backend.postgres
    assert settings.state_backend.backend_type is BackendType.SQLITE
    for host, port, user, password, database, sslmode in (
        (sink.host, sink.port, sink.user, sink.pass_, sink.db, sink.sslmode),
        (state.host, state.port, state.user, state.password, state.db, state.sslmode),
    ):
        assert (database, sslmode) == ("streamling", SslMode.DISABLE)
        Database(host, port, user, password.reveal(), database).execute("SELECT 1")


def test_the_status_says_what_runs_where(here: Path, kafka: KafkaBroker) -> None:
    found = {one["server"]: one for one in json.loads(succeeded(here, "status", "--format", "json"))["servers"]}
    assert found["kafka"]["state"] == "running"
    assert found["kafka"]["address"] == kafka.brokers
    assert psutil.Process(found["kafka"]["pid"]).exe().endswith("java")
    assert f"export STREAMLING__KAFKA_SOURCE__BROKERS={kafka.brokers}" in succeeded(here, "status")
    (alone,) = json.loads(succeeded(here, "status", "kafka", "--format", "json"))["servers"]
    assert alone["server"] == "kafka"


def test_nothing_listens_for_other_machines(
    here: Path, schema_registry: SchemaRegistry, postgres: PostgresServer, clickhouse: ClickHouseServer
) -> None:
    servers = json.loads(succeeded(here, "status", "--format", "json"))["servers"]
    assert {one["server"] for one in servers} == {"kafka", "registry", "postgres", "clickhouse"}
    for one in servers:
        assert one["state"] == "running"
        listening = [c for c in psutil.Process(one["pid"]).net_connections() if c.status == psutil.CONN_LISTEN]
        assert listening
        assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}


def test_schemas_survive_a_registry_that_is_killed(schema_registry: SchemaRegistry) -> None:
    subject = f"{new_topic()}-value"
    number = schema_registry.register(subject, json.dumps(SCHEMA))
    schema_registry.kill()
    schema_registry.start()
    assert schema_registry.register(subject, json.dumps(SCHEMA)) == number


def test_a_new_version_must_read_old_rows_unless_the_subject_says_otherwise(schema_registry: SchemaRegistry) -> None:
    subject = f"{new_topic()}-value"
    schema_registry.register(subject, json.dumps(SCHEMA))
    other = json.dumps({**SCHEMA, "fields": [{"name": "new", "type": "long"}]})
    with pytest.raises(Exception, match="409"):
        schema_registry.register(subject, other)
    schema_registry.compatibility(subject, "NONE")
    schema_registry.register(subject, other)


def test_tables_survive_a_clickhouse_that_is_killed_and_strangers_read_nothing(
    clickhouse: ClickHouseServer, shared_stack: Stack, tmp_path: Path
) -> None:
    database = clickhouse.database()
    clickhouse.execute(f"CREATE TABLE {database}.t ENGINE = MergeTree ORDER BY n AS SELECT number AS n FROM numbers(9)")
    clickhouse.kill()
    clickhouse.start()
    variables = json.loads(succeeded(shared_stack.directory, "env", "clickhouse", "--format", "json"))
    settings = load_settings(config=None, environ=variables, cwd=tmp_path).settings
    for connection in (settings.clickhouse_source, settings.clickhouse_sink):
        assert connection.database == "streamling"
        with ClickHouse(connection, application_id="test", timeout=10) as server:
            assert server.rows(f"SELECT sum(n) AS n FROM {database}.t") == [[36]]
    for query in (f"SELECT * FROM {database}.t", "SELECT * FROM file('/etc/passwd', LineAsString)"):
        answer = httpx.post(clickhouse.url, content=query)
        assert "ACCESS_DENIED" in answer.text


@pytest.mark.parametrize("server", ["kafka", "postgres", "clickhouse"])
def test_a_command_that_is_killed_while_a_server_starts_leaves_one_that_the_next_finds(own: Path, server: str) -> None:
    words = ["dev", "up", server, "--port", f"{server}={free_ports(1)[0]}", "--directory", str(own)]
    starting = subprocess.Popen(
        [sys.executable, "-m", "streamling.cli.main", *words],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    record = own / server / "record.json"
    deadline = time.monotonic() + TIMEOUT_S
    while not record.exists() or json.loads(record.read_text())["pid"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    starting.send_signal(signal.SIGKILL)
    starting.wait()
    pid = json.loads(record.read_text())["pid"]
    shown = json.loads(succeeded(own, "up", server, "--format", "json"))["servers"]
    (found,) = [one for one in shown if one["server"] == server]
    assert (found["state"], found["pid"]) == ("running", pid)
    assert succeeded(own, "down") == f"stopped {server}\n"
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    succeeded(own, "down", "--purge")
    assert not own.exists()


def test_without_servers_commands_say_how_to_start_them(own: Path) -> None:
    for words in (["env"], ["env", "postgres"], ["tail", "orders"], ["produce", "orders", "-"]):
        assert "streamling dev up" in failed(own, *words)
    assert dev(own, "status").returncode == 1
    assert "no server runs" in succeeded(own, "down")
    assert not own.exists()


@pytest.mark.parametrize("words", [["up", "kafak"], ["up", "--port", "kafka=x"], ["up", "--port", "web=1"]])
def test_an_unknown_server_or_port_is_wrong_usage(words: list[str], own: Path) -> None:
    assert dev(own, *words).returncode == 2
    assert not own.exists()
