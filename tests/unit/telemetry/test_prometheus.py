"""The text format of Prometheus."""

from __future__ import annotations

import pytest

from streamling.telemetry.metrics import Measurement, MetricKind, Metrics
from streamling.telemetry.prometheus import prometheus_name, render

NODE = {"id": "orders", "operator_type": "kafka"}
BRACES = '{id="orders",operator_type="kafka"'


def test_names_end_in_total_and_milliseconds_as_prometheus_makes_them_of_otlp() -> None:
    metrics = Metrics()
    metrics.count("output_rows", 25, NODE)
    metrics.count("node_wait", 1200, {**NODE, "state": "starved"})
    metrics.gauge("event_time_watermark", 1_010_000, NODE)
    metrics.gauge("kafka_consumer.messages_lag", 0, {**NODE, "partition": "3"})
    metrics.count("of_a_plugin_total", 2.5, NODE)
    lines = render(metrics).splitlines()
    assert [line for line in lines if not line.startswith("# HELP")] == [
        "# TYPE streamling_event_time_watermark_milliseconds gauge",
        f"streamling_event_time_watermark_milliseconds{BRACES}}} 1010000",
        "# TYPE streamling_kafka_consumer_messages_lag gauge",
        f'streamling_kafka_consumer_messages_lag{BRACES},partition="3"}} 0',
        "# TYPE streamling_node_wait_milliseconds_total counter",
        f'streamling_node_wait_milliseconds_total{BRACES},state="starved"}} 1200',
        "# TYPE streamling_of_a_plugin_total counter",
        f"streamling_of_a_plugin_total{BRACES}}} 2.5",
        "# TYPE streamling_output_rows_total counter",
        f"streamling_output_rows_total{BRACES}}} 25",
    ]
    assert render(metrics).endswith("\n")


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (MetricKind.COUNT, "total_rows", "rows_total"),
        (MetricKind.COUNT, "rows__read_", "rows_read_total"),
        (MetricKind.GAUGE, "a.b-c/d", "a_b_c_d"),
        (MetricKind.GAUGE, "rows_total", "rows_total"),
        (MetricKind.LATENCY, "answer_milliseconds", "answer_milliseconds"),
        (MetricKind.LATENCY, "milliseconds_of_answer", "milliseconds_of_answer"),
        (MetricKind.LATENCY, "answer_ms", "answer_ms_milliseconds"),
    ],
)
def test_names_of_plugins_become_those_of_otlp(kind: MetricKind, name: str, expected: str) -> None:
    """As `normalizeName` of Prometheus makes them of metrics that are pushed."""
    assert prometheus_name(Measurement(f"streamling_{name}", kind, (), 1)) == f"streamling_{expected}"


def test_buckets_of_a_histogram_are_cumulative_and_those_of_http_are_finer() -> None:
    metrics = Metrics()
    for milliseconds in (99, 100, 101, 4_000_000):
        metrics.latency("elapsed_compute", milliseconds, {"id": "n"})
    metrics.latency("http_request_latency", 20, {"id": "n"})
    lines = render(metrics).splitlines()
    name = "streamling_elapsed_compute_milliseconds"
    buckets = [line for line in lines if line.startswith(f"{name}_bucket")]
    assert buckets[0] == f'{name}_bucket{{id="n",le="100"}} 2'
    assert buckets[1] == f'{name}_bucket{{id="n",le="250"}} 3'
    assert buckets[-2:] == [f'{name}_bucket{{id="n",le="3600000"}} 3', f'{name}_bucket{{id="n",le="+Inf"}} 4']
    assert f'{name}_sum{{id="n"}} 4000300' in lines
    assert f'{name}_count{{id="n"}} 4' in lines
    assert 'streamling_http_request_latency_milliseconds_bucket{id="n",le="25"} 1' in lines


def test_labels_and_names_of_plugins_become_valid_ones() -> None:
    metrics = Metrics()
    metrics.count("a.b", 1, {"text": 'a "quoted"\\\n', "my.tag": "x", "my-tag": "y", "1st": "z"})
    metrics.count("a_b", 1, {"text": "other name, same family"})
    metrics.gauge("a_b_total", 7, {})
    metrics.latency("of_plugin", 1, {"le": "mine"})
    text = render(metrics)
    assert r'streamling_a_b_total{key_1st="z",my_tag="y;x",text="a \"quoted\"\\\n"} 1' in text.splitlines()
    assert text.count("# TYPE streamling_a_b_total ") == 1
    assert 'streamling_of_plugin_milliseconds_bucket{key_le="mine",le="100"} 1' in text.splitlines()


def test_a_run_without_metrics_is_empty_text() -> None:
    assert render(Metrics()) == ""


def test_labels_that_prometheus_reserves_get_another_name() -> None:
    metrics = Metrics()
    metrics.count("x", 1, {"id": "a"}, {"__name__": "other", "_zone": "b", "le": "1", "path": "a\udcff"})
    assert '{key___name__="other",key_zone="b",id="a",key_le="1",path="a?"} 1' in render(metrics)
    render(metrics).encode()
