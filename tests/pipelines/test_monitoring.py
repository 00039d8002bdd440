"""The dashboard and the alerts of monitoring/, in a real Prometheus that scrapes a run, or a page with all metrics."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamling.dev.topics import Message
from streamling.telemetry.catalog import METRICS
from streamling.telemetry.metrics import MetricKind, Metrics
from streamling.telemetry.prometheus import CONTENT_TYPE, render
from support.admin_client import client_of
from support.debian_package import NotToBeHad
from support.harness import Workspace
from support.http_server import Answer, Request, recording_server
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.prometheus_server import Prometheus, program, prometheus, text_page

pytestmark = pytest.mark.servers
MONITORING = Path(__file__).parents[2] / "monitoring"
ALERTS = MONITORING / "alerts.yaml"


DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
# What Prometheus makes of the resource of metrics that it receives over OTLP.
PUSHED = {"job": "streamling", "instance": "orders"}
ABSENT = {
    "streamling_checkpoint_epochs_failed_total": "no epoch is open for 300 s",
    "streamling_rows_unaccounted_total": "no row is lost",
}
"""Counters that a healthy run does not have, and why."""


def expressions_of_the_dashboard(instance: str) -> list[str]:
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [one.replace("$instance", instance).replace("$__rate_interval", "20s") for one in found]


def instances(server: Prometheus) -> set[str]:
    """What the variable of the dashboard offers."""
    (variable,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "instance"]
    form = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert form, variable
    return {series["metric"][form[2]] for series in server.query(form[1])}


def record_everything(metrics: Metrics) -> None:
    """Every metric that there is, with its labels, and a hostile one."""
    for info in METRICS:
        if info.name == "output_rows_delta":
            continue
        for role in ("source", "transform", "sink"):
            labels = {**PUSHED, "id": role, "topology_node_type": role, "operator_type": 'any "quoted" \\ \n'}
            labels |= dict.fromkeys(info.labels, "x")
            for state in ("blocked", "starved") if info.name == "node_wait" else ("",):
                more = {"state": state} if state else {}
                if info.kind is MetricKind.COUNT:
                    metrics.count(info.name, 3, {**labels, **more})
                elif info.kind is MetricKind.GAUGE:
                    metrics.gauge(info.name, 7, labels)
                else:
                    metrics.latency(info.name, 150, labels)


@pytest.fixture(scope="module")
def server() -> Iterator[Prometheus]:
    metrics = Metrics()

    def text() -> str:
        record_everything(metrics)  # counters grow, so that rates have values
        return render(metrics)

    with text_page(text, CONTENT_TYPE) as page:
        try:
            with prometheus(page, ALERTS) as running:
                deadline = time.monotonic() + 60
                while not running.query("rate(streamling_output_rows_total[20s]) > 0"):
                    assert time.monotonic() < deadline, "nothing was scraped"
                    time.sleep(0.5)
                yield running
        except NotToBeHad as reason:
            pytest.skip(str(reason))


def test_every_expression_of_the_dashboard_finds_a_series_of_a_pipeline_that_pushes(server: Prometheus) -> None:
    assert instances(server) == {PUSHED["instance"]}
    expressions = expressions_of_the_dashboard(PUSHED["instance"])
    assert len(expressions) > 15
    assert [one for one in expressions if not server.query(one)] == []
    assert [one for one in expressions_of_the_dashboard("another") if server.query(one)] == []


def test_panels_have_units_and_descriptions_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert [p["title"] for p in panels if not p["description"] or not p["fieldConfig"]["defaults"]["unit"]] == []
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_rules_are_valid_and_are_evaluated(server: Prometheus) -> None:
    done = subprocess.run(
        [str(program("promtool")), "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(rule["health"] in ("ok", "unknown") for rule in server.rules())


def test_prometheus_reads_all_that_is_rendered(server: Prometheus) -> None:
    assert [series["value"][1] for series in server.query("up")] == ["1"]
    (series,) = server.query('streamling_rows_skipped_total{id="sink"}')
    assert series["metric"]["operator_type"] == 'any "quoted" \\ \n'


PIPELINE = """
sources:
  orders:
    type: kafka
    topic: {topic}
    data_format: json
    primary_key: id
    schema: {{id: int64, at: int64, name: string}}
    on_error: skip
    telemetry: {{event_time: {{column: at, unit: seconds}}}}
transforms:
  some: {{type: sql, primary_key: id, sql: "SELECT id, at, nullif(name, 'none') AS name FROM orders WHERE id % 3 <> 0"}}
sinks:
  table:
    type: postgres
    schema: public
    table: orders
    primary_key: name
    from: some
    on_error: dead_letter
    dead_letter: {{type: file, path: letters}}
  hook: {{type: webhook, url: '{url}/x', from: some}}
"""


def orders() -> Iterator[Message]:
    """Every tenth is not JSON, and a few have no key: to find the place of such a row in the topic takes a while."""
    for number in itertools.count():
        row = {"id": number, "at": int(time.time()), "name": "none" if number % 100 == 4 else f"n{number}"}
        yield Message(b"{" if number % 10 == 9 else json.dumps(row).encode())


@pytest.mark.spark
def test_every_expression_of_the_dashboard_finds_a_series_of_a_real_run(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    """And the alert on bad rows fires on the first ones; others do not."""
    refused: list[Request] = []

    def answer(request: Request) -> Answer:
        if not refused:
            refused.append(request)
            return Answer(status=503)
        return Answer()

    topic = kafka.topic("orders")
    with recording_server(answer) as hook, kafka.producing(topic, orders(), rate=30):
        place.write(PIPELINE.format(topic=topic, url=hook.url))
        run = place.start_warm(
            ADMIN_API_ENABLED="true",
            ADMIN_API_PORT=0,
            KAFKA_SOURCE__BROKERS=kafka.brokers,
            KAFKA_SOURCE__LAG_REPORT_INTERVAL_MS=1000,
            APPLICATION_ID=topic,
            BACKPRESSURE_EVENT_THRESHOLD_MS=0,
            **postgres.database().settings(),
        )
        with client_of(run) as client:
            address = f"{client.base_url.host}:{client.base_url.port}"
        try:
            with prometheus(address, ALERTS) as server:
                expressions = expressions_of_the_dashboard(re.escape(address).replace("\\", "\\\\"))
                healthy = [one for one in expressions if not any(name in one for name in ABSENT)]
                assert len(expressions) - len(healthy) == len(ABSENT)
                deadline = time.monotonic() + 60
                while missing := [one for one in healthy if not server.query(one)]:
                    assert run.ended() is None, run.stderr
                    assert time.monotonic() < deadline, f"{missing}\n{run.stderr}"
                    time.sleep(0.5)
                assert instances(server) == {address}
                assert [one["value"][1] for one in server.query("streamling_pipeline_ready")] == ["1"]
                firing = {one["metric"]["alertname"] for one in server.query('ALERTS{alertstate="firing"}')}
                assert firing == {"StreamlingBadRows"}
        except NotToBeHad as reason:
            pytest.skip(str(reason))
        finally:
            run.stop()
