"""Pipelines that are alive but do not advance: readiness, error, log and exit code say so, and what is waited for."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import httpx
import pytest

from support.admin_client import INSPECT, client_of
from support.harness import Child, Workspace
from support.http_server import Answer, recording_server
from support.kafka_broker import KafkaBroker
from support.otlp_receiver import http_receiver
from support.postgres_server import PostgresServer
from support.silent_proxy import silent_proxy

pytestmark = [pytest.mark.faults, pytest.mark.servers]

FROM_FILES = """\
sources:
  numbers:
    {type: file, path: in, format: jsonl, mode: {type: continuous, poll_interval: 100ms}, schema: {id: int64},
     primary_key: id}
sinks:
  out: {type: SINK, from: numbers}
"""
TO_POSTGRES = FROM_FILES.replace("type: SINK", "type: postgres, table: out, schema: public, primary_key: id")

QUICK = {"POSTGRES_SINK__STATEMENT_TIMEOUT_SECS": 4, "POSTGRES_SINK__POOL_ACQUIRE_TIMEOUT_SECS": 2}


def add_rows(place: Workspace, *numbers: int) -> None:
    directory = place.directory / "in"
    directory.mkdir(exist_ok=True)
    text = "".join(json.dumps({"id": number}) + "\n" for number in numbers)
    (directory / f"{numbers[0]}.jsonl").write_text(text)


def readiness(client: httpx.Client) -> tuple[int, Any]:
    answer = client.get("/readyz")
    return answer.status_code, answer.json()


def stalls(child: Child) -> int:
    return child.stderr.count("' has made no progress for")


def test_a_sink_that_does_not_answer_is_named_and_so_is_its_return(place: Workspace, postgres: PostgresServer) -> None:
    database = postgres.database()
    add_rows(place, 1, 2)
    with silent_proxy(database.host, database.port) as proxy:
        settings = {**database.settings(), "POSTGRES_SINK__PORT": proxy.port, **QUICK, "PROGRESS_DEADLINE_SECS": 2}
        child = place.write(TO_POSTGRES).start(spark=False, **INSPECT, **settings)
        with client_of(child) as client:
            child.until_epochs(1)
            assert readiness(client)[0] == 200
            proxy.deaf = True
            add_rows(place, 3)
            child.until(lambda: readiness(client)[0] == 503, "a pipeline that is not ready")
            _, found = readiness(client)
            assert (found["ready"], found["phase"], found["node"]) == (False, "running", "out")
            assert found["seconds"] >= 2
            assert (client.get("/healthz").status_code, client.get("/admin/error").status_code) == (200, 204)
            child.until(lambda: stalls(child) == 1, "a warning")
            assert "WARNING 'out' has made no progress for" in child.stderr
            child.until(lambda: child.stderr.count("sink 'out' failed") >= 2, "two attempts")
            assert stalls(child) == 1
            assert "progress again" not in child.stderr.partition("'out' has made no progress")[2]
            proxy.silence()
            proxy.deaf = False
            child.until(lambda: readiness(client)[0] == 200, "a pipeline that is ready again")
            child.until(
                lambda: child.stderr.rpartition("' has made")[2].count("progress again") == 1, "a word about it"
            )
        child.signal(signal.SIGTERM)
        child.wait().succeeded()
    assert database.rows("SELECT id FROM public.out ORDER BY id") == [(1,), (2,), (3,)]


def test_a_sink_that_hangs_ends_the_process_if_asked_to_with_the_reason_in_the_last_line(
    place: Workspace, postgres: PostgresServer
) -> None:
    database = postgres.database()
    add_rows(place, 1)
    with silent_proxy(database.host, database.port) as proxy:
        settings = {**database.settings(), "POSTGRES_SINK__PORT": proxy.port, "PROGRESS_EXIT_SECS": 20}
        child = place.write(TO_POSTGRES).start(spark=False, **INSPECT, **settings, PROGRESS_DEADLINE_SECS=1)
        child.until_epochs(1)
        proxy.deaf = True
        add_rows(place, 2)
        ended = child.wait().failed()
    last = ended.stderr.rstrip().splitlines()[-1]
    assert "'out' has made no progress for" in last, ended.stderr[-2000:]
    assert "[NO_PROGRESS]" in last
    place.start(spark=False, **{**database.settings(), "JOB_MODE": "false"})
    deadline = time.monotonic() + 60
    while database.rows("SELECT id FROM public.out ORDER BY id") != [(1,), (2,)]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_tolerant_process_serves_that_it_was_stuck(place: Workspace, postgres: PostgresServer) -> None:
    database = postgres.database()
    add_rows(place, 1)
    with silent_proxy(database.host, database.port) as proxy:
        settings = {**database.settings(), "POSTGRES_SINK__PORT": proxy.port, "PROGRESS_EXIT_SECS": 20}
        child = place.write(TO_POSTGRES).start(spark=False, **INSPECT, **settings, PREVIEW_TOLERANT_MODE="true")
        child.until_epochs(1)
        proxy.deaf = True
        add_rows(place, 2)
        with client_of(child) as client:
            child.until(lambda: client.get("/admin/error").status_code == 200, "the error")
            error = client.get("/admin/error").json()
            assert (error["node"], error["internal"], error["retriable"]) == ("out", False, True)
        child.signal(signal.SIGTERM)
        child.wait().failed()


def test_a_tolerant_process_stays_although_its_pipeline_has_failed_while_rows_flowed(place: Workspace) -> None:
    add_rows(place, 1)
    settings = {**INSPECT, "PREVIEW_TOLERANT_MODE": "true", "SHUTDOWN_BUDGET_SECS": 3}
    place.write(FROM_FILES.replace("SINK", "blackhole").replace("numbers", "Numbers"))
    child = place.start(spark=False, **settings)
    child.until_epochs(1)
    (place.directory / "in" / "2.jsonl").write_text('{"id": "two"}\n')
    with client_of(child) as client:
        child.until(lambda: client.get("/admin/error").status_code == 200, "the error")
        time.sleep(5)
        assert child.ended() is None
        assert client.get("/admin/error").json()["node"] == "Numbers"
    child.signal(signal.SIGTERM)
    assert "shutdown did not complete" not in child.wait().failed().stderr


def test_a_last_epoch_that_is_not_finalized_is_counted(place: Workspace) -> None:
    add_rows(place, 1)
    with recording_server(lambda request: Answer(503)) as server, http_receiver() as receiver:
        place.write(FROM_FILES.replace("type: SINK", f"type: webhook, url: {server.url}"))
        endpoint = {"OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT": receiver.endpoint}
        child = place.start(spark=False, **endpoint)
        child.until(lambda: server.requests, "a request")
        child.signal(signal.SIGTERM)
        ended = child.wait().succeeded()
        assert "the last epoch did not complete" in ended.stderr
        assert receiver.value("streamling_checkpoint_terminal_finalizer_skipped") == 1


def test_a_broker_that_is_gone_is_named_and_so_is_its_return(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [json.dumps({"id": n}) for n in range(10)])
    place.write(f"""\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64}}}}
sinks:
  out: {{type: blackhole, from: events}}
""")
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "PROGRESS_DEADLINE_SECS": 2}
    child = place.start(spark=False, **INSPECT, **settings)
    with client_of(child) as client:
        child.until_epochs(1)
        kafka.kill()
        try:
            child.until(lambda: readiness(client)[0] == 503, "a pipeline that is not ready")
            _, found = readiness(client)
            assert found["node"] == "events"
            assert client.get("/admin/error").status_code == 204
            assert client.get("/healthz").status_code == 200
            child.until(lambda: stalls(child) >= 1, "a warning")
        finally:
            kafka.start()
        kafka.produce(topic, [json.dumps({"id": n}) for n in range(10)])
        child.until(lambda: readiness(client)[0] == 200, "a pipeline that is ready again")
    child.signal(signal.SIGTERM)
    child.wait().succeeded()


def test_a_source_without_new_rows_is_healthy(place: Workspace) -> None:
    add_rows(place, 1)
    place.write(FROM_FILES.replace("SINK", "blackhole"))
    child = place.start(spark=False, **INSPECT, PROGRESS_DEADLINE_SECS=5, PROGRESS_EXIT_SECS=15)
    with client_of(child) as client:
        child.until_epochs(1)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            assert readiness(client)[0] == 200
            time.sleep(0.2)
    child.signal(signal.SIGTERM)
    assert stalls(child) == 0
    child.wait().succeeded()


@pytest.mark.parametrize("type_", ["webhook", "handler"])
def test_an_epoch_that_is_slow_and_advances_is_healthy(place: Workspace, type_: str) -> None:
    """Every request takes a third of the deadline, and the epoch four times as long as it."""
    add_rows(place, *range(12))
    with recording_server(lambda request: Answer(body=request.body, delay=1)) as server:
        fields = f"url: {server.url}, one_row_per_request: true, primary_key: id, parallelism: 1"
        if type_ == "webhook":
            place.write(FROM_FILES.replace("type: SINK", f"type: webhook, {fields}"))
        else:
            transforms = f"transforms:\n  asked: {{type: handler, from: numbers, {fields}}}\n"
            sinks = "sinks:\n  out: {type: blackhole, from: asked}\n"
            place.write(FROM_FILES.partition("sinks:")[0] + transforms + sinks)
        child = place.start(spark=False, **INSPECT, PROGRESS_DEADLINE_SECS=3, PROGRESS_EXIT_SECS=20)
        child.until_epochs(1)
        assert len(server.requests) == 12
    assert stalls(child) == 0
    child.signal(signal.SIGTERM)
    child.wait().succeeded()


def test_a_topic_whose_rows_wait_for_a_slow_epoch_is_not_stalled(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [json.dumps({"id": n}) for n in range(10)])
    with recording_server(lambda request: Answer(delay=1)) as server:
        place.write(f"""\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64}}}}
sinks:
  out: {{type: webhook, from: events, url: {server.url}, one_row_per_request: true, parallelism: 1}}
""")
        settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "KAFKA_SOURCE__STALL_WATCHDOG_TIMEOUT_SEC": 2}
        child = place.start(spark=False, **INSPECT, **settings, PROGRESS_DEADLINE_SECS=4)
        with client_of(child) as client:
            child.until(lambda: server.requests, "a request")
            while len(server.requests) < 10:
                assert readiness(client)[0] == 200
                time.sleep(0.2)
        child.until_epochs(1)
    assert stalls(child) == 0
    assert "stalled" not in child.stderr
    child.signal(signal.SIGTERM)
    child.wait().succeeded()


PLUGIN = """\
import time
import pyarrow as pa
from streamling.plugin import SinkPlugin, SourcePlugin, register_sink, register_source
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("_gs_op", pa.string(), False)])

@register_source("own_source")
class Source(SourcePlugin):
    batches = 0
    def output_schema(self):
        return SCHEMA
    def generate_batch(self):
        self.batches += 1
        if self.batches > 1:
            wait("generate_batch")
            return None
        return pa.RecordBatch.from_pylist([{"id": n, "_gs_op": "i"} for n in range(10)], schema=SCHEMA)

@register_sink("own_sink")
class Sink(SinkPlugin):
    batches = 0
    def process_batch(self, batch):
        self.batches += 1
        if PLACE == "terminate":
            raise ValueError("no such row")
    def process_checkpoint_finalizer(self, epoch):
        wait("finalizer")
    def terminate(self):
        if self.batches:
            wait("terminate")

def wait(place):
    if place == PLACE:
        time.sleep(1000)

PLACE = "NOWHERE"
"""
OWN = "sources:\n  numbers: {type: own_source, primary_key: id}\nsinks:\n  out: {type: own_sink, from: numbers}\n"


@pytest.mark.parametrize(
    ("where", "node", "reason"),
    [
        ("generate_batch", "numbers", "its source does not return from reading"),
        ("finalizer", "out", "hearing that epoch 1 is finalized does not end"),
    ],
)
def test_a_plugin_that_does_not_return_is_named_wherever_it_waits(
    place: Workspace, where: str, node: str, reason: str
) -> None:
    place.write(OWN, plugin=PLUGIN.replace("NOWHERE", where))
    child = place.start(spark=False, **INSPECT, PROGRESS_DEADLINE_SECS=2, PROGRESS_EXIT_SECS=8)
    with client_of(child) as client:
        child.until(lambda: readiness(client)[1]["reason"] == reason, "a pipeline that is not ready")
        assert readiness(client)[1]["node"] == node
    last = child.wait().failed().stderr.rstrip().splitlines()[-1]
    assert f"'{node}' has made no progress for" in last
    assert reason in last


def test_a_pipeline_that_has_failed_says_so_before_its_nodes_are_closed(place: Workspace) -> None:
    place.write(OWN, plugin=PLUGIN.replace("NOWHERE", "terminate"))
    child = place.start(spark=False, **INSPECT, PROGRESS_DEADLINE_SECS=2)
    with client_of(child) as client:
        child.until(lambda: "sink out failed" in child.stderr, "a failure")
        child.until(lambda: client.get("/admin/error").status_code == 200, "the error", timeout=5)
        assert child.ended() is None
        assert readiness(client)[0] == 503
        assert "no such row" in readiness(client)[1]["reason"]
    child.wait().failed()


def test_a_state_backend_that_does_not_answer_is_named(place: Workspace, postgres: PostgresServer) -> None:
    database = postgres.database()
    add_rows(place, 1)
    with silent_proxy(database.host, database.port) as proxy:
        settings = {**database.state_settings(), "STATE_BACKEND__POSTGRES__PORT": proxy.port}
        place.write(FROM_FILES.replace("SINK", "blackhole"))
        child = place.start(spark=False, **INSPECT, **settings, PROGRESS_DEADLINE_SECS=2, PROGRESS_EXIT_SECS=15)
        with client_of(child) as client:
            child.until_epochs(1)
            proxy.deaf = True
            add_rows(place, 2)
            child.until(lambda: "is being repeated" in (readiness(client)[1]["reason"] or ""), "the state backend")
            assert "from the state backend is being repeated: " in readiness(client)[1]["reason"]
        last = child.wait().failed().stderr.rstrip().splitlines()[-1]
    assert "state backend is being repeated: " in last
    assert f"127.0.0.1:{proxy.port}" in last


def test_a_target_that_does_not_answer_at_the_start_is_named(place: Workspace, postgres: PostgresServer) -> None:
    database = postgres.database()
    add_rows(place, 1)
    with silent_proxy(database.host, database.port) as proxy:
        proxy.deaf = True
        settings = {**database.settings(), "POSTGRES_SINK__PORT": proxy.port, **QUICK, "PROGRESS_DEADLINE_SECS": 2}
        child = place.write(TO_POSTGRES).start(spark=False, **INSPECT, **settings, PROGRESS_EXIT_SECS=12)
        with client_of(child) as client:
            child.until(lambda: readiness(client)[1]["node"] == "out", "the sink")
            found = readiness(client)[1]
            assert (found["ready"], found["phase"]) == (False, "starting")
            child.until(lambda: stalls(child) == 1, "a warning")
        last = child.wait().failed().stderr.rstrip().splitlines()[-1]
    assert "'out' has made no progress for" in last
    assert "it is starting: " in last
