"""Metrics on their way to OTLP receivers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from streamling.spec.settings import Settings
from streamling.telemetry import export as export_module
from streamling.telemetry.catalog import BOUNDS_MS, HTTP_BOUNDS_MS
from streamling.telemetry.destination import Protocol, find_destination, parse_deny_list, parse_tags
from streamling.telemetry.run_telemetry import Telemetry
from support.http_server import Answer
from support.otlp_receiver import grpc_receiver, http_receiver

NODE = {"id": "orders", "topology_node_type": "source", "operator_type": "kafka"}


def telemetry(endpoint: str, protocol: str = "", interval: int = 600, **more: object) -> Telemetry:
    block = {
        "ingestion_endpoint": endpoint,
        "endpoint_protocol": protocol,
        "batch_interval_secs": interval,
        **more,
    }
    return Telemetry(
        Settings.model_validate(
            {"application_id": "shop", "open_telemetry_metrics": block, "runtime": {"pod_name": "pod-7"}}
        )
    )


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("protocol", ["", "http/json", "grpc", "HttpBinary", "HttpJson", "Grpc"])
def test_the_last_metrics_arrive_over_every_protocol(protocol: str) -> None:
    with (grpc_receiver if protocol.lower() == "grpc" else http_receiver)() as receiver:
        run = telemetry(receiver.endpoint, protocol, global_tags="region:eu, id:never, :x, a:b:c")
        run.start()
        run.metrics.count("output_rows", 25, NODE)
        run.metrics.gauge("kafka_consumer.messages_lag", 0, {**NODE, "partition": "0"})
        run.metrics.latency("elapsed_compute", 120, NODE)
        run.metrics.latency("http_request_latency", 12, NODE)
        run.close()
        rows, delta = (receiver.series(f"streamling_{name}")[0] for name in ("output_rows", "output_rows_delta"))
        assert rows.labels == {**NODE, "region": "eu"}
        assert (rows.type, rows.temporality, rows.value) == ("sum", "CUMULATIVE", 25)
        assert (delta.type, delta.temporality, delta.value) == ("sum", "DELTA", 25)
        assert receiver.value("streamling_kafka_consumer.messages_lag") == 0
        (compute,) = receiver.series("streamling_elapsed_compute")
        assert (compute.unit, compute.bounds, compute.count, compute.value) == ("ms", BOUNDS_MS, 1, 120)
        assert receiver.series("streamling_http_request_latency")[0].bounds == HTTP_BOUNDS_MS
        assert rows.resource == {
            "service.name": "streamling",
            "service.instance.id": "shop",
            "k8s.pod.name": "pod-7",
        }


def test_increments_add_up_although_an_export_fails() -> None:
    answers = [Answer(), Answer(), Answer(400)]  # of all metrics, of the increments, of all metrics
    with http_receiver(answers=answers) as receiver:
        run = telemetry(receiver.endpoint, "http/json", interval=1)
        run.start()
        run.metrics.count("output_rows", 10, NODE)
        until(lambda: len(receiver.headers) >= 2)
        run.metrics.count("output_rows", 10, NODE)
        until(lambda: len(receiver.headers) >= 3)
        run.metrics.count("output_rows", 20, NODE)
        run.close()
        assert receiver.value("streamling_output_rows_delta") == 40
        assert receiver.value("streamling_output_rows") == 40


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_a_receiver_that_refuses_increments_gets_everything_else(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Prometheus answers a request with increments with 500, and stores nothing of it."""
    answers = [Answer(), Answer(500), Answer(), Answer(500)]
    with http_receiver(answers=answers) as receiver:
        run = telemetry(receiver.endpoint, protocol, interval=1)
        run.start()
        run.metrics.count("output_rows", 10, NODE)
        until(lambda: len(receiver.headers) >= 2)
        assert "but not the increments" not in caplog.text, "once may be a coincidence"
        run.metrics.count("output_rows", 30, NODE)
        until(lambda: len(receiver.headers) >= 6)
        assert receiver.value("streamling_output_rows") == 40
        assert receiver.series("streamling_output_rows_delta") == []  # they are not tried again at once
        run.close()
        assert receiver.value("streamling_output_rows_delta") == 40
    assert caplog.text.count("but not the increments of output_rows_delta") == 1
    assert "metrics do not reach" not in caplog.text


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_what_a_receiver_rejects_of_a_request_is_logged(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    partial = ExportMetricsServiceResponse()
    partial.partial_success.rejected_data_points = 3
    partial.partial_success.error_message = "too many series for http://u:QX7Z-1@store"
    as_json = json_format.MessageToJson(partial).encode()
    body = as_json if protocol == "http/json" else partial.SerializeToString()
    with http_receiver(answers=[Answer(body=body), Answer(body=b"OK"), Answer(body=b"[1]")]) as receiver:
        run = telemetry(receiver.endpoint, protocol, interval=1)
        run.start()
        run.metrics.count("output_rows", 1, NODE)
        until(lambda: len(receiver.headers) >= 3)
        run.close()
    (line,) = (record.message for record in caplog.records if "rejected" in record.message)
    assert line == f"{receiver.endpoint} has rejected 3 metrics or spans: too many series for http://u:*****@store"
    assert "do not reach" not in caplog.text


def test_metrics_of_the_deny_list_are_neither_exported_nor_shown() -> None:
    with http_receiver() as receiver:
        run = telemetry(receiver.endpoint, metric_deny_list="msg_decode, ^output_rows_delta$, (")
        run.start()
        run.metrics.count("output_rows", 1, NODE)
        run.metrics.latency("kafka_consumer.msg_decode_latency", 1, NODE)
        run.close()
        assert [one.name for one in receiver.series()] == ["streamling_output_rows"]
        assert [one.name for one in run.metrics.snapshot()] == ["streamling_output_rows"]


@pytest.mark.parametrize("protocol", ["", "http/json", "grpc"])
def test_a_receiver_that_is_away_costs_one_warning_and_errors(
    protocol: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "REQUEST_S", 0.3)
    run = telemetry("http://127.0.0.1:9/v1/metrics", protocol, interval=1)
    run.start()
    run.metrics.count("output_rows", 1, NODE)
    until(lambda: "metrics do not reach" in caplog.text)
    began = time.monotonic()
    run.close()
    assert time.monotonic() - began < 5.5
    assert caplog.text.count("metrics do not reach") == 1
    assert any(record.levelno == logging.ERROR for record in caplog.records)


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
@pytest.mark.parametrize("answer", [Answer(500), Answer(413), Answer(429, headers={"Retry-After": "9999"})])
def test_a_receiver_that_refuses_costs_one_warning(
    protocol: str, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    with http_receiver(answers=[answer] * 100) as receiver:
        run = telemetry(receiver.endpoint, protocol, interval=1)
        run.start()
        run.metrics.count("output_rows", 1, NODE)
        until(lambda: len(receiver.headers) >= 2)
        began = time.monotonic()
        run.close()
        assert time.monotonic() - began < 5.5
    assert caplog.text.count("metrics do not reach") == 1


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_a_redirection_is_no_success_and_is_not_followed(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """Headers, which may have a token, are for the receiver that the settings name."""
    with http_receiver() as other:
        redirection = Answer(301, headers={"Location": other.endpoint})
        with http_receiver(answers=[redirection] * 100) as receiver:
            run = telemetry(receiver.endpoint, protocol)
            run.start()
            run.metrics.count("output_rows", 1, NODE)
            run.close()
        assert other.headers == []
    assert "metrics do not reach" in caplog.text


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
def test_a_password_in_the_endpoint_of_grpc_is_neither_sent_nor_logged(
    scheme: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with grpc_receiver() as receiver:
        address = receiver.endpoint.removeprefix("http://")
        run = telemetry(f"{scheme}://shop:secret-1@{address}", "grpc")
        run.start()
        run.metrics.count("output_rows", 1, NODE)
        run.close()
        assert receiver.value("streamling_output_rows") == 1
    assert "set OTEL_EXPORTER_OTLP_HEADERS" in caplog.text
    monkeypatch.setattr(export_module, "REQUEST_S", 0.3)
    away = telemetry(f"{scheme}://shop:secret-1@127.0.0.1:9", "grpc")
    away.start()
    away.metrics.count("output_rows", 1, NODE)
    away.close()
    assert "metrics do not reach" in caplog.text
    assert "secret-1" not in caplog.text


def test_a_label_that_is_not_text_does_not_stop_the_export() -> None:
    with http_receiver() as receiver:
        run = telemetry(receiver.endpoint)
        run.start()
        run.metrics.count("output_rows", 1, {**NODE, "path": "a\udcff"})
        run.close()
        assert receiver.series("streamling_output_rows")[0].labels == {**NODE, "path": "a?"}


def until_exports_end() -> None:
    """Otherwise they would log into the next test."""
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("export ")])


def test_metrics_and_traces_together_take_five_seconds_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with http_receiver(answers=[Answer(fault="hang")] * 10) as receiver:
        traces = receiver.endpoint.replace("/v1/metrics", "/v1/traces")
        run = telemetry(receiver.endpoint, "http/json", traces_endpoint=traces)
        run.start()
        run.metrics.count("output_rows", 1, NODE)
        assert run.tracer is not None
        run.tracer.record("epoch 1", 1e9, 1, [])
        began = time.monotonic()
        run.close()
        assert time.monotonic() - began < 9.5
    until_exports_end()
    assert "the last metrics were not sent" in caplog.text
    assert "the last traces were not sent" in caplog.text


def test_the_last_export_takes_five_seconds_at_most(caplog: pytest.LogCaptureFixture) -> None:
    with http_receiver(answers=[Answer(fault="hang")]) as receiver:
        run = telemetry(receiver.endpoint, "http/json")
        run.start()
        run.metrics.count("output_rows", 1, NODE)
        began = time.monotonic()
        run.close()
        assert 4 < time.monotonic() - began < 9.5
    until_exports_end()
    assert "the last metrics were not sent" in caplog.text


@pytest.mark.parametrize(
    ("endpoint", "protocol", "warning"),
    [
        ("none", "", None),
        (" NONE ", "nonsense", None),
        ("", "", None),
        ("localhost:4318", "", "metrics are not exported: the endpoint 'localhost:4318' is not a URL"),
        ("ftp://host/x", "", "is not a URL"),
        ("http://", "", "is not a URL"),
        ("http://[::1", "", "is not a URL"),
        ("http://host:99999999/", "", "is not a URL"),
        ("http://:4318/x", "", "is not a URL"),
        ("http://host/x", "udp", "'udp' is not a protocol; there are: http/json, http/protobuf, grpc"),
    ],
)
def test_no_receiver_is_no_error(
    endpoint: str, protocol: str, warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert find_destination(endpoint, protocol, "metrics") is None
    assert [warning in record.getMessage() for record in caplog.records if warning] == ([True] if warning else [])
    assert bool(caplog.records) == bool(warning)


def test_a_url_is_used_as_it_is_written() -> None:
    found = find_destination("https://host:4318/any/path", " HTTPJSON ", "metrics")
    assert found is not None
    assert (found.endpoint, found.protocol) == ("https://host:4318/any/path", Protocol.JSON)


def test_tags_and_patterns_that_are_not_valid_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_tags(" a : b ,c:d,,e,f:,:g,h:i:j") == {"a": "b", "c": "d"}
    assert len(caplog.records) == 4
    denied = parse_deny_list("kafka_consumer\\..*latency,[,^output_rows$")
    assert "'[' in open_telemetry_metrics.metric_deny_list is ignored" in caplog.text
    assert denied.denies("streamling_kafka_consumer.msg_decode_latency")
    assert denied.denies("streamling_output_rows")
    assert not denied.denies("streamling_output_rows_rate")


def test_exporters_are_imported_only_if_they_are_used() -> None:
    import subprocess
    import sys

    script = """
import sys
from streamling.spec.settings import Settings
from streamling.telemetry.run_telemetry import Telemetry
run = Telemetry(Settings())
run.start(); run.metrics.count("x", 1, {}); run.close()
print([name for name in sys.modules if "exporter" in name or name in ("grpc", "requests", "httpx")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
