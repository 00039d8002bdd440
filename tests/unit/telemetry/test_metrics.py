"""Counts, gauges and latencies as the readers of the OpenTelemetry SDK get them."""

from __future__ import annotations

import gc
import logging
import threading
import weakref

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from streamling.telemetry.catalog import BOUNDS_MS
from streamling.telemetry.metrics import Measurement, MetricKind, Metrics

NODE = {"id": "orders", "topology_node_type": "source"}
SERIES = (("id", "orders"), ("topology_node_type", "source"))


def test_counts_add_up_gauges_keep_the_last_value_and_latencies_are_put_into_buckets() -> None:
    metrics = Metrics()
    for value in (2, 3):
        metrics.count("sent", value, NODE)
        metrics.gauge("depth", value, NODE)
    for milliseconds in (0, 100, 100.5, 3_600_000, 3_600_001):
        metrics.latency("elapsed_compute", milliseconds, NODE)
    buckets = (2, 1, *[0] * (len(BOUNDS_MS) - 3), 1, 1)
    assert metrics.snapshot() == (
        Measurement("streamling_depth", MetricKind.GAUGE, SERIES, 3),
        Measurement("streamling_elapsed_compute", MetricKind.LATENCY, SERIES, 7_200_201.5, buckets, BOUNDS_MS),
        Measurement("streamling_sent", MetricKind.COUNT, SERIES, 5),
    )
    assert metrics.snapshot() == metrics.snapshot()


def test_a_gauge_that_is_forgotten_is_gone_until_it_is_recorded_again() -> None:
    metrics = Metrics()
    metrics.forget("lag", NODE)
    for partition in ("0", "1"):
        metrics.gauge("lag", 7, NODE, {"partition": partition})
    metrics.snapshot()
    metrics.forget("lag", {**NODE, "partition": "0"})
    assert [dict(m.labels)["partition"] for m in metrics.snapshot()] == ["1"]
    metrics.gauge("lag", 0, {**NODE, "partition": "0"})
    assert [(dict(m.labels)["partition"], m.value) for m in metrics.snapshot()] == [("0", 0), ("1", 7)]


def test_every_reader_gets_every_series_with_our_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "nonsense")
    exporter = InMemoryMetricReader()
    metrics = Metrics(lambda: [exporter])
    series = 2100  # the SDK's limit is 2000
    for number in range(series):
        for record in (metrics.count, metrics.gauge, metrics.latency):
            record(record.__name__, number, {"number": str(number)})
    data = exporter.get_metrics_data()
    assert data is not None
    exported = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    for name in ("streamling_count", "streamling_gauge", "streamling_latency"):
        labels = {point.attributes["number"] for point in exported[name].data.data_points}
        assert labels == {str(number) for number in range(series)}
    latency = exported["streamling_latency"]
    assert (latency.unit, tuple(latency.data.data_points[0].explicit_bounds)) == ("ms", BOUNDS_MS)
    assert len(metrics.snapshot()) == 3 * series


def test_names_keep_their_first_spelling() -> None:
    metrics = Metrics()
    for record in (metrics.count, metrics.gauge, metrics.latency):
        for name in (f"myPlugin.{record.__name__}", f"MYPLUGIN.{record.__name__}"):
            record(name, 1, NODE, {"name": name})
    assert [m.name for m in metrics.snapshot()] == [
        f"streamling_myPlugin.{what}" for what in ("count", "gauge", "latency") for _ in range(2)
    ]


def test_a_recording_that_is_not_valid_is_dropped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.gauge("text", "no number", NODE)  # type: ignore[arg-type]
        metrics.gauge("nan", float("nan"), NODE)
        metrics.count("falls", -1, NODE)
        metrics.latency("early", -1, NODE)
        metrics.count("has blanks", 1, NODE)
        metrics.count("x" * 300, 1, NODE)
        metrics.count("tags", 1, NODE, 7)  # type: ignore[arg-type]
    metrics.gauge("depth", -1, NODE)
    assert [m.name for m in metrics.snapshot()] == ["streamling_depth"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 7
    assert "a recording of the metric 'falls' is dropped: -1.0 is not a valid value of a count" in warnings


def test_counts_from_many_threads_are_exact_while_they_are_read() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(1000):
            metrics.count("sent", 1, NODE)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.snapshot()
    assert [m.value for m in metrics.snapshot()] == [4000]


def test_the_metrics_of_a_run_are_freed_with_it() -> None:
    metrics = Metrics()
    metrics.count("sent", 1, NODE)
    instruments = weakref.ref(metrics._instruments)  # type: ignore[arg-type]
    del metrics
    gc.collect()
    assert instruments() is None
