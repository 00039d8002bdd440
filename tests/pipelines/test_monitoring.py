"""The dashboard and the alerts of monitoring/, in a real Prometheus that scrapes the text of a run."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamling.telemetry.catalog import METRICS
from streamling.telemetry.metrics import MetricKind, Metrics
from streamling.telemetry.prometheus import CONTENT_TYPE, render
from support.debian_package import NotToBeHad
from support.prometheus_server import Prometheus, program, prometheus, text_page

pytestmark = pytest.mark.servers
MONITORING = Path(__file__).parents[2] / "monitoring"
ALERTS = MONITORING / "alerts.yaml"


def expressions_of_the_dashboard() -> list[str]:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [one.replace("$instance", ".*").replace("$__rate_interval", "20s") for one in found]


def expressions_of_the_alerts() -> list[str]:
    return re.findall(r"^ +expr: (.*)$", ALERTS.read_text(), re.MULTILINE)


def record_everything(metrics: Metrics) -> None:
    """Every metric that there is, with its labels, and a hostile one."""
    for info in METRICS:
        if info.name == "output_rows_delta":
            continue
        for role in ("source", "transform", "sink"):
            labels = {"id": role, "topology_node_type": role, "operator_type": 'any "quoted" \\ \n'}
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


def test_every_expression_of_the_dashboard_finds_a_series(server: Prometheus) -> None:
    expressions = expressions_of_the_dashboard()
    assert len(expressions) > 15
    assert [one for one in expressions if not server.query(one)] == []


def test_every_metric_of_the_alerts_exists_and_the_rules_are_valid(server: Prometheus) -> None:
    done = subprocess.run(
        [str(program("promtool")), "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {name for one in expressions_of_the_alerts() for name in re.findall(r"streamling_\w+", one)}
    assert names
    assert [name for name in names if not server.query(name)] == []
    assert all(rule["health"] in ("ok", "unknown") for rule in server.rules())


def test_prometheus_reads_all_that_is_rendered(server: Prometheus) -> None:
    assert [series["value"][1] for series in server.query("up")] == ["1"]
    (series,) = server.query('streamling_rows_skipped_total{id="sink"}')
    assert series["metric"]["operator_type"] == 'any "quoted" \\ \n'
