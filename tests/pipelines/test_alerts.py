"""The alerts of monitoring/, each when it should fire and when it must not, in the time machine of promtool."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamling.telemetry.catalog import METRICS
from streamling.telemetry.metrics import PREFIX, Measurement
from streamling.telemetry.prometheus import prometheus_name
from support.debian_package import NotToBeHad
from support.prometheus_server import program

pytestmark = pytest.mark.servers
ALERTS = Path(__file__).parents[2] / "monitoring" / "alerts.yaml"

# One value per minute: `1x5` six times 1, `1+2x5` rising by 2, `_x3` three times nothing; nothing after the end.
SCRAPED = 'job="streamling", instance="host:9000"'
PUSHED = 'job="streamling", instance="orders"'
COORDINATOR = 'id="checkpoint_coordinator", service_instance_id="orders"'


def series(name: str, values: str, labels: str = "", *, of: str = SCRAPED) -> tuple[str, str]:
    more = f", {labels}" if labels else ""
    return f"{name if name == 'up' else PREFIX + name}{{{of}{more}}}", values


def coordinator(name: str, values: str, labels: str = "", *, of: str = SCRAPED) -> tuple[str, str]:
    return series(name, values, f"{COORDINATOR}{', ' if labels else ''}{labels}", of=of)


def running(of: str = SCRAPED, *, minutes: int = 180, bounded: bool = False) -> list[tuple[str, str]]:
    ready = coordinator("pipeline_ready", f"1x{minutes}", f'bounded="{str(bounded).lower()}"', of=of)
    return [ready, *([series("up", f"1x{minutes}", of=of)] if of == SCRAPED else [])]


def flush(bucket_60_s: str, all_: str) -> list[tuple[str, str]]:
    name = "checkpoint_sink_flush_milliseconds_bucket"
    buckets = {"60000": bucket_60_s, "120000": all_, "+Inf": all_}
    return [series(name, values, f'id="out", le="{bound}"') for bound, values in buckets.items()]


def requests(success: str, error: str) -> list[tuple[str, str]]:
    return [
        series("http_requests_total", success, 'id="hook", outcome="success", status_class="2xx"'),
        series("http_requests_total", error, 'id="hook", outcome="error", status_class="5xx"'),
    ]


def lag(values: str) -> tuple[str, str]:
    return series("kafka_consumer_messages_lag", values, 'id="src", partition="0"')


HOUR_MS = 3_600_000
IDLE = [
    *running(),
    coordinator("checkpoint_epochs_in_flight", "0x180"),
    coordinator("checkpoint_epochs_succeeded_total", "9x180"),
    lag("0x180"),
    series("output_rows_total", "100x180", 'id="src"'),
    series("event_time_watermark_milliseconds", "0x180", 'id="src"'),
    *flush("9x180", "9x180"),
    *requests("9x180", "1x180"),
    series("rows_skipped_total", "3x180", 'id="src", stage="decode", reason="decode_error"'),
    coordinator("checkpoint_epochs_failed_total", "1x180"),
]
BUSY = [
    *running(),
    coordinator("checkpoint_epochs_in_flight", "1x180"),
    coordinator("checkpoint_epochs_succeeded_total", "0+60x180"),
    lag("20000x180"),
    series("output_rows_total", "0+1000x180", 'id="src"'),
    series("event_time_watermark_milliseconds", "0+60000x180", 'id="src"'),
    *flush("0+60x180", "0+60x180"),
    *requests("0+60x180", "0+3x180"),
]


@dataclass(frozen=True)
class Case:
    name: str
    input: list[tuple[str, str]]
    firing: dict[int, set[str]]
    """By minute."""


CASES = [
    Case("an idle pipeline", IDLE, {m: set() for m in (70, 120, 180)}),
    Case("a busy pipeline", BUSY, {m: set() for m in (5, 30, 180)}),
    Case(
        "the first skipped row",
        [*running(), series("rows_skipped_total", "_x30 1x90", 'id="src", stage="decode", reason="decode_error"')],
        {29: set(), 31: {"StreamlingBadRows"}, 38: {"StreamlingBadRows"}, 60: set()},
    ),
    Case(
        "the first dead letter, and more of the same",
        [*running(), series("rows_dead_lettered_total", "_x30 2x30 2+1x60", 'id="out", stage="write", reason="x"')],
        {31: {"StreamlingBadRows"}, 50: set(), 70: {"StreamlingBadRows"}},
    ),
    Case(
        "bad rows of a pipeline that was restarted",
        [*running(), series("rows_skipped_total", "8x30 _x2 1x60", 'id="src", stage="decode", reason="x"')],
        {25: set(), 34: {"StreamlingBadRows"}, 60: set()},
    ),
    Case(
        "the first row that is not accounted for",
        [*running(), series("rows_unaccounted_total", "_x30 1x120", 'id="src"')],
        {29: set(), 31: {"StreamlingRowsUnaccounted"}, 80: {"StreamlingRowsUnaccounted"}, 140: set()},
    ),
    Case(
        "the first epoch that is overdue",
        [*running(), coordinator("checkpoint_epochs_failed_total", "_x30 1x90")],
        {29: set(), 31: {"StreamlingEpochOverdue"}, 60: set()},
    ),
    Case("a process that does not answer", [series("up", "1x30 0x30")], {30: set(), 34: {"StreamlingDown"}}),
    Case(
        "a process that does not answer, of a pipeline that ends by itself",
        [*running(minutes=30, bounded=True)[:1], series("up", "1x30 0x60")],
        {60: set()},
    ),
    Case("another job that does not answer", [series("up", "0x30", of='job="node", instance="a"')], {20: set()}),
    Case(
        "a pipeline that pushes no more",
        running(of=PUSHED, minutes=30),
        {30: set(), 40: {"StreamlingGone"}, 80: {"StreamlingGone"}, 120: set()},
    ),
    Case("a pipeline that pushes no more because it has ended", running(PUSHED, minutes=9, bounded=True), {40: set()}),
    Case("a pipeline that pushes", running(PUSHED), {100: set()}),
    Case(
        "a target that is gone together with its process",
        [*running(minutes=30)],
        {50: set()},
    ),
    Case(
        "a pipeline that is not ready",
        [coordinator("pipeline_ready", "1x30 0x60", 'bounded="false"'), series("up", "1x90")],
        {35: set(), 42: {"StreamlingNotReady"}},
    ),
    Case(
        "a first epoch that does not end",
        [*running(), coordinator("checkpoint_epochs_in_flight", "0x5 1x60")],
        {10: set(), 25: {"StreamlingNoProgress"}},
    ),
    Case(
        "an epoch that does not end",
        [
            *running(),
            coordinator("checkpoint_epochs_in_flight", "1x120"),
            coordinator("checkpoint_epochs_succeeded_total", "0+60x30 1800x90"),
        ],
        {30: set(), 40: set(), 50: {"StreamlingNoProgress"}},
    ),
    Case(
        "epochs of seven minutes",
        [
            *running(),
            coordinator("checkpoint_epochs_in_flight", "1x120"),
            coordinator("checkpoint_epochs_succeeded_total", " ".join(f"{n}x6" for n in range(1, 18))),
        ],
        {m: set() for m in (15, 31, 60, 90, 110)},
    ),
    Case(
        "messages that nobody reads",
        [
            *running(),
            lag("0x20 50x60"),
            coordinator("checkpoint_epochs_in_flight", "0x90"),
            coordinator("checkpoint_epochs_succeeded_total", "9x90"),
        ],
        {25: set(), 45: {"StreamlingStalled"}},
    ),
    Case(
        "messages that wait a moment for their epoch",
        [
            *running(),
            lag("0 50 0 50 0 50 0 50 0 50 0 50 0 50 0 50"),
            coordinator("checkpoint_epochs_in_flight", "0x90"),
        ],
        {15: set()},
    ),
    Case(
        "a lag that grows",
        [*running(), lag("0+2000x90"), coordinator("checkpoint_epochs_succeeded_total", "0+60x90")],
        {10: set(), 40: {"StreamlingLagGrows"}},
    ),
    Case(
        "a lag that shrinks",
        [*running(), lag("900000-2000x90"), coordinator("checkpoint_epochs_succeeded_total", "0+60x90")],
        {40: set()},
    ),
    Case("a slow sink", [*running(), *flush("0x90", "0+1x90")], {5: set(), 30: {"StreamlingSinkSlow"}}),
    Case(
        "rows that are hours old",
        [
            *running(),
            series("event_time_watermark_milliseconds", f"{-2 * HOUR_MS}+60000x180", 'id="src"'),
            series("output_rows_total", "0+10x180", 'id="src"'),
        ],
        {10: set(), 30: {"StreamlingEventTimeLag"}},
    ),
    Case(
        "no rows for hours",
        [
            *running(),
            series("event_time_watermark_milliseconds", "0+60000x30 1800000x150", 'id="src"'),
            series("output_rows_total", "0+10x30 300x150", 'id="src"'),
        ],
        {m: set() for m in (60, 100, 180)},
    ),
    Case("requests that fail", [*running(), *requests("9x60", "0+5x60")], {3: set(), 20: {"StreamlingHttpErrors"}}),
    Case("only requests that fail", [*running(), requests("", "0+5x60")[1]], {20: {"StreamlingHttpErrors"}}),
]


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return program("promtool")
    except NotToBeHad as reason:
        pytest.skip(str(reason))


def promql_test(minute: int, firing: set[str]) -> dict[str, object]:
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)]
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_alerts_fire_when_they_should_and_only_then(promtool: Path, tmp_path: Path, case: Case) -> None:
    file = tmp_path / "case.yaml"
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.input],
        "promql_expr_test": [promql_test(minute, firing) for minute, firing in case.firing.items()],
    }
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run([str(promtool), "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_firing() -> None:
    names = set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))
    assert names == {name for case in CASES for firing in case.firing.values() for name in firing}


def test_metrics_of_the_alerts_are_in_the_catalog() -> None:
    families = {prometheus_name(Measurement(PREFIX + info.name, info.kind, (), 0.0)) for info in METRICS}
    used = set(re.findall(r"streamling_\w+", "\n".join(re.findall(r"expr: (.*(?:\n {10}.*)*)", ALERTS.read_text()))))
    assert len(used) > 8
    assert {name.removesuffix("_bucket") for name in used} <= families
