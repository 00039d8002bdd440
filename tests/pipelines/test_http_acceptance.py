"""Topics through handlers and into webhooks, with Spark: what the endpoint gets, and what comes out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.avro_frames import framed
from support.harness import Finished, Workspace, printed
from support.http_server import Answer, RecordingServer, Request, recording_server
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]
EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = """{"type": "record", "name": "s", "doc": "{\\"primaryKeys\\": [\\"id\\"]}", "fields": [
    {"name": "id", "type": "string"}, {"name": "data", "type": "string"}]}"""
GREEK = [{"id": "1", "data": "alpha"}, {"id": "2", "data": "beta"}, {"id": "3", "data": "gamma"}]


def updated(request: Request) -> Answer:
    """Prefixes the data of every row."""
    given = request.json
    for row in given if isinstance(given, list) else [given]:
        inner = row["data"] if "metadata" in row else row
        inner["data"] = f"updated-{inner['data']}"
    return Answer(body=json.dumps(given).encode())


class Topic:
    def __init__(self, place: Workspace, kafka: KafkaBroker, registry: SchemaRegistry) -> None:
        self._place = place
        self._kafka = kafka
        self._registry = registry

    def run(self, rows: Sequence[Any], nodes: str, **settings: object) -> Finished:
        """Run a pipeline over a new topic of these rows until all of them are written."""
        topic = self._kafka.topic("s")
        id_ = self._registry.register(f"{topic}-value", SCHEMA)
        self._kafka.produce(topic, [framed(id_, SCHEMA, row) for row in rows])
        self._place.write(f"sources: {{s: {{type: kafka, topic: {topic}}}}}\n{nodes}")
        addresses = {
            "KAFKA_SOURCE__BROKERS": self._kafka.brokers,
            "KAFKA_SOURCE__SCHEMA_REGISTRY_URL": self._registry.url,
            "NUM_RECORDS_BEFORE_STOP": len(rows),
            "APPLICATION_ID": topic,
        }
        return self._place.run(**addresses, **settings).succeeded()


@pytest.fixture
def topic(place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> Topic:
    return Topic(place, kafka, schema_registry)


def handled(topic: Topic, server: RecordingServer, fields: str) -> list[str]:
    """The data of the rows that a handler between a topic and a print sink gives."""
    node = f"transforms: {{h: {{type: handler, from: s, primary_key: id, url: '{server.url}/h', {fields}}}}}"
    run = topic.run(GREEK, f"{node}\nsinks: {{screen: {{type: print, from: h, sample_every: 1}}}}\n")
    return [row["data"] for *_, row in printed(run.stdout)]


@pytest.mark.parametrize("version", [0, 1])
def test_a_handler_gets_one_row_per_request(topic: Topic, version: int) -> None:
    with recording_server(updated) as server:
        fields = f"one_row_per_request: true, payload_version: {version}"
        assert handled(topic, server, fields) == ["updated-alpha", "updated-beta", "updated-gamma"]
        bodies = sorted((request.json for request in server.requests), key=str)
    rows = [{**row, "_gs_op": "i"} for row in GREEK]
    assert bodies == (rows if version == 0 else [{"metadata": {"op": "i"}, "data": row} for row in rows])


def test_a_handler_gets_batches_that_carry_the_data(topic: Topic) -> None:
    with recording_server(updated) as server:
        assert handled(topic, server, "payload_version: 0") == ["updated-alpha", "updated-beta", "updated-gamma"]
        assert 1 <= len(server.requests) <= 3 and all(isinstance(request.json, list) for request in server.requests)
        assert server.rows == [{**row, "_gs_op": "i"} for row in GREEK]


def test_a_webhook_gets_one_request_per_row_in_order(topic: Topic) -> None:
    rows = [{"id": str(n), "data": f"d{n}"} for n in range(500)]
    with recording_server() as server:
        fields = "one_row_per_request: true, payload_version: 0"
        sink = f"sinks: {{hook: {{type: webhook, from: s, url: '{server.url}/hook', {fields}}}}}\n"
        assert topic.run(rows, sink).seconds < 120
        assert [request.json["id"] for request in server.requests] == [row["id"] for row in rows]
        assert server.most_in_flight == 1 and len({request.key for request in server.requests}) == 500


# Large epochs


def test_executors_call_the_endpoint_and_the_rows_stay_in_order(place: Workspace) -> None:
    """With SQL before and after the handler, bad rows, and the limit of requests in flight shared out."""

    def respond(request: Request) -> Answer:
        rows = [{**row, "twice": 2 * row["id"]} for row in request.json]
        return Answer(body=json.dumps([{**r, "twice": "odd"} if r["id"] == 700 else r for r in rows]).encode())

    with recording_server(respond) as server:
        place.write(
            "sources: {n: {type: generator, rows: 4000, primary_key: id}}\n"
            "transforms:\n"
            "  kept: {type: sql, primary_key: id, sql: 'SELECT id FROM n WHERE id % 2 = 0'}\n"
            f"  h: {{type: handler, from: kept, primary_key: id, url: '{server.url}/h', batch_size: 50, "
            "schema_override: {twice: int64}, on_error: dead_letter, dead_letter: {type: file, path: letters}}\n"
            "  after: {type: sql, primary_key: id, sql: 'SELECT id, twice + 1 AS odd FROM h'}\n"
            "sinks: {out: {type: file, from: after, path: out, format: json}}\n"
        )
        settings = {"EPOCH__DRIVER_ROWS": 0, "EXTERNAL_HTTP_HANDLER__BUFFER_SIZE": 6}
        run = place.run(**settings).succeeded()
        assert server.most_in_flight <= 6
        assert len({request.key for request in server.requests}) == len(server.requests)
    rows = place.rows("out", "json")
    assert [(row["id"], row["odd"]) for row in rows] == [(n, 2 * n + 1) for n in range(0, 4000, 2) if n != 700]
    assert "1 row became a dead letter" in run.stderr
    (letters,) = (place.directory / "letters").rglob("*.jsonl")
    letter = json.loads(letters.read_text())
    assert letter["row"]["id"] == 700 and "schema_mismatch" in json.dumps(letter)


def test_secrets_are_in_no_output(place: Workspace) -> None:
    secret, header = "s3cret-Of-Crm!", "t0p-Header-Value?"

    def echo(request: Request) -> Answer:
        return Answer(400, json.dumps(request.headers).encode())

    with recording_server(echo) as server:
        place.write(
            "sources: {n: {type: generator, rows: 3, primary_key: id}}\n"
            f"sinks: {{hook: {{type: webhook, from: n, url: '{server.url}', secret_name: crm, "
            f"sign_with: crm, headers: {{Token: '{header}'}}}}}}\n"
        )
        settings = {"HTTP_SECRET_HEADER__CRM": "X-Crm", "HTTP_SECRET_VALUE__CRM": secret}
        failed = place.run(**settings).failed()
        planned = place.run("plan", "pipeline.yaml", **settings).succeeded()
        assert server.requests[0].headers["x-crm"] == secret and server.requests[0].headers["token"] == header
    assert "answers 400" in failed.stderr
    for text in (failed.stdout, failed.stderr, planned.stdout, planned.stderr):
        assert secret not in text and header not in text and "s3cret" not in text


@pytest.mark.parametrize("name", ["handler", "webhook"])
def test_an_example_runs_with_its_local_endpoint(place: Workspace, name: str) -> None:
    command = [sys.executable, str(EXAMPLES / "endpoint.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout and endpoint.stderr
        address = endpoint.stderr.readline().split()[-1]
        text = (EXAMPLES / f"{name}.yaml").read_text()
        run = place.write(text.replace("http://127.0.0.1:8787", address)).run().succeeded()
        endpoint.kill()
        received = [json.loads(line) for line in endpoint.stdout]
    if name == "handler":
        rows = [row for *_, row in printed(run.stdout)]
        assert len(rows) == 20 and {row["verdict"] for row in rows} <= {"check", "fine"}
    else:
        assert [row["data"]["id"] for row in received] == list(range(20))
