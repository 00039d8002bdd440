"""What is wrong is found before the first row, with a real schema registry behind `--validate` and plain runs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streamling.engine.preparation import PROBE_SECONDS
from support.harness import Finished, Workspace
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers

BID = {"block": "long", "id": "string", "data": "string"}
# A start of Python and its imports, on a busy machine, besides the time a registry is given.
BOUND_S = PROBE_SECONDS + 20


@pytest.fixture(scope="module")
def registry(schema_registry: SchemaRegistry) -> SchemaRegistry:
    for topic, columns in {
        "bid": BID,
        "blocks": {"block_number": "long", "hash": "string"},
        "calls": {"id": "string", "call_type": "string", "amount": "string"},
    }.items():
        schema_registry.register(f"{topic}-value", record(columns))
    schema_registry.register("keyed-value", record(BID, doc='{"primaryKeys": ["id"]}'))
    return schema_registry


def record(columns: dict[str, str], **more: str) -> str:
    fields = [{"name": name, "type": type_} for name, type_ in columns.items()]
    return json.dumps({"type": "record", "name": "Row", "fields": fields, **more})


def validated(place: Workspace, pipeline: str, url: str, *arguments: str) -> dict[str, Any]:
    """The report of a child process, whose standard output holds nothing else; with its exit code."""
    place.write(pipeline)
    finished = place.run("pipeline.yaml", "--validate", *arguments, KAFKA_SOURCE__SCHEMA_REGISTRY_URL=url)
    report: dict[str, Any] = json.loads(finished.stdout)
    assert finished.code == (0 if report["is_valid"] else 1)
    assert "Traceback" not in finished.stderr
    return report | {"seconds": finished.seconds}


KEY_NOT_IN_SCHEMA = """\
sources:
  test_kafka_source: {type: kafka, topic: bid, primary_key: does_not_exist}
sinks:
  out: {type: blackhole, from: test_kafka_source}
"""
KEY_MESSAGE = (
    "Primary key validation failed for node 'test_kafka_source': columns [does_not_exist] not found in schema. "
    "Available columns: [block, id, data, _gs_op]"
)


def run(place: Workspace, pipeline: str, registry: SchemaRegistry) -> Finished:
    return place.write(pipeline).run("run", "pipeline.yaml", KAFKA_SOURCE__SCHEMA_REGISTRY_URL=registry.url)


@pytest.mark.spark
def test_va_01_a_run_refuses_a_key_that_is_not_in_the_schema(place: Workspace, registry: SchemaRegistry) -> None:
    finished = run(place, KEY_NOT_IN_SCHEMA, registry).failed()
    assert KEY_MESSAGE in finished.stderr
    assert "pipeline.yaml:2:" in finished.stderr


@pytest.mark.spark
def test_va_02_a_run_refuses_sql_that_does_not_parse(place: Workspace, registry: SchemaRegistry) -> None:
    pipeline = """\
sources:
  bids: {type: kafka, topic: bid, primary_key: id}
transforms:
  some: {type: sql, primary_key: id, sql: SELCT id FORM bids}
sinks:
  out: {type: blackhole, from: some}
"""
    finished = run(place, pipeline, registry).failed()
    assert "SQL" in finished.stderr
    assert "sql transform 'some': a query must begin with SELECT or WITH, not with `SELCT`" in finished.stderr


def test_va_04_a_report_of_a_user_error(place: Workspace, registry: SchemaRegistry) -> None:
    report = validated(place, KEY_NOT_IN_SCHEMA, registry.url)
    assert (report["success"], report["is_valid"]) == (True, False)
    assert report["errors"] == [f"kafka source 'test_kafka_source': {KEY_MESSAGE}"]


def test_va_05_an_unknown_column_in_a_source_filter(place: Workspace, registry: SchemaRegistry) -> None:
    pipeline = """\
sources:
  blocks: {type: kafka, topic: blocks, primary_key: block_number, filter: number > 5}
sinks:
  out: {type: blackhole, from: blocks}
"""
    report = validated(place, pipeline, registry.url)
    assert (report["success"], report["is_valid"]) == (False, False)
    (error,) = report["errors"]
    assert error.startswith("kafka source 'blocks': failed to create Kafka source")
    assert error.count("No field named number") == 1
    assert error.count("Did you mean block_number?") == 1


KAFKA_TO_KAFKA = """\
sources:
  bids: {{type: kafka, topic: {topic}}}
sinks:
  copies: {{type: kafka, from: bids, topic: copies, data_format: avro{more}}}
"""


def test_va_06_a_kafka_sink_without_a_key(place: Workspace, registry: SchemaRegistry) -> None:
    report = validated(place, KAFKA_TO_KAFKA.format(topic="bid", more=""), registry.url)
    assert (report["success"], report["is_valid"]) == (False, False)
    assert report["errors"] == ["kafka sink 'copies': requires a primary key (hint: set primary_key)"]


@pytest.mark.parametrize(("topic", "more"), [("bid", ", primary_key: id"), ("keyed", "")])
def test_va_06_a_key_comes_from_the_sink_or_the_avro_schema(
    topic: str, more: str, place: Workspace, registry: SchemaRegistry
) -> None:
    report = validated(place, KAFKA_TO_KAFKA.format(topic=topic, more=more), registry.url)
    assert (report["success"], report["errors"]) == (True, [])


def test_va_08_a_comparison_of_256_bits_inside_a_condition(place: Workspace, registry: SchemaRegistry) -> None:
    pipeline = """\
sources:
  calls: {type: kafka, topic: calls, primary_key: id}
transforms:
  wide: {type: sql, primary_key: id, sql: "SELECT id, call_type, to_u256(amount) AS amount FROM calls"}
  some: {type: sql, primary_key: id, sql: "SELECT * FROM wide WHERE call_type <> 'delegatecall' AND amount > 0"}
sinks:
  out: {type: blackhole, from: some}
"""
    report = validated(place, pipeline, registry.url)
    assert (report["success"], report["is_valid"], report["errors"]) == (True, True, [])


def test_va_09_validation_does_not_touch_sinks(place: Workspace, registry: SchemaRegistry) -> None:
    pipeline = """\
sources:
  bids: {type: kafka, topic: bid, primary_key: id}
sinks:
  totals:
    type: postgres_aggregate
    from: bids
    schema: public
    landing_table: bids
    agg_table: totals
    aggregate: {how_many: {fn: count}}
"""
    with counting() as postgres:
        place.write(pipeline)
        finished = place.run(
            "pipeline.yaml",
            "--validate",
            KAFKA_SOURCE__SCHEMA_REGISTRY_URL=registry.url,
            POSTGRES_SINK__HOST="127.0.0.1",
            POSTGRES_SINK__PORT=postgres.port,
        ).succeeded()
        report = json.loads(finished.stdout)
        assert (report["success"], report["is_valid"], report["errors"]) == (True, True, [])
        assert postgres.requests == []


# A registry that is not there, or does not know


AVRO = """\
sources:
  bids: {type: kafka, topic: shop.bids, primary_key: id}
sinks:
  out: {type: blackhole, from: bids}
"""


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def assert_not_carried_out(report: dict[str, Any], *parts: str) -> None:
    assert (report["success"], report["is_valid"]) == (False, False)
    (error,) = report["errors"]
    for part in ("kafka source 'bids'", "failed to create Kafka source", "'shop.bids'", *parts):
        assert part in error
    assert "hunter2" not in json.dumps(report)


def test_a_registry_that_is_down_is_named_without_its_password_in_bounded_time(place: Workspace) -> None:
    port = closed_port()
    report = validated(place, AVRO, f"http://user:hunter2@127.0.0.1:{port}")
    assert_not_carried_out(report, f"user:*****@127.0.0.1:{port} does not answer")
    assert report["seconds"] < BOUND_S


def test_a_registry_that_never_answers_is_given_up_in_bounded_time(place: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        report = validated(place, AVRO, f"http://127.0.0.1:{port}")
    assert_not_carried_out(report, f"127.0.0.1:{port} does not answer")
    assert report["seconds"] < BOUND_S


def test_a_subject_that_the_registry_does_not_have(place: Workspace, registry: SchemaRegistry) -> None:
    report = validated(place, AVRO, registry.url)
    assert_not_carried_out(report, "answers 404 to /subjects/shop.bids-value/versions/latest")
    assert report["seconds"] < BOUND_S


def test_other_problems_are_reported_beside_a_registry_that_is_down(place: Workspace) -> None:
    pipeline = AVRO + "  second: {type: print, from: nobody}\n"
    report = validated(place, pipeline, f"http://127.0.0.1:{closed_port()}")
    assert (report["success"], report["is_valid"]) == (False, False)
    assert [problem["code"] for problem in report["problems"]] == ["SCHEMA_NOT_FOUND", "NODE_NOT_FOUND"]


# Without --probe


class Counting:
    """A server that remembers who asked."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        asked = self.requests

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                asked.append(self.client_address[0])
                super().handle()

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


@contextmanager
def counting() -> Iterator[Counting]:
    made = Counting()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


@pytest.fixture
def fake_java(tmp_path: Path) -> tuple[Path, Path]:
    """A home of Java that only notes that it was started, and the note."""
    home, note = tmp_path / "java", tmp_path / "started"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\ntouch '{note}'\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    return home, note


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        (("validate", "pipeline.yaml", "--format", "json"), False),
        (("plan", "pipeline.yaml"), False),
        (("validate", "pipeline.yaml", "--format", "json", "--probe"), True),
        (("pipeline.yaml", "--validate"), True),
        (("run", "pipeline.yaml", "--dry-run"), True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_only_a_probe_asks_and_no_check_starts_java(
    arguments: tuple[str, ...], asks: bool, place: Workspace, fake_java: tuple[Path, Path]
) -> None:
    home, note = fake_java
    with counting() as server:
        finished = place.write(AVRO).run(
            *arguments,
            environment={"JAVA_HOME": str(home)},
            KAFKA_SOURCE__SCHEMA_REGISTRY_URL=f"http://127.0.0.1:{server.port}",
        )
        assert bool(server.requests) == asks
    assert finished.code == (1 if asks else 0)
    assert not note.exists()
