"""Epochs as traces."""

from __future__ import annotations

import pytest

from streamling.engine.protocol.epoch_times import EpochTimes
from streamling.engine.protocol.epoch_trace import trace_epoch
from streamling.spec.settings import Settings
from streamling.telemetry.run_telemetry import Telemetry
from support.otlp_receiver import http_receiver

TIMES = EpochTimes(
    number=7,
    began=1_700_000_000.0,
    rows=100,
    wait_ms=5,
    read_ms=20,
    transform_ms=30,
    sinks={"table": 40.0, "topic": 10.0},
    finalize_ms=5,
    replayed=True,
    commits={"table": 70.0, "topic": 40.0},
    total_ms=75,
)


@pytest.mark.parametrize("protocol", ["", "http/json"])
def test_an_epoch_is_a_trace_whose_spans_are_its_steps(protocol: str) -> None:
    with http_receiver() as receiver:
        endpoint = receiver.endpoint.replace("/v1/metrics", "/v1/traces")
        block = {"traces_endpoint": endpoint, "endpoint_protocol": protocol}
        run = Telemetry(Settings.model_validate({"application_id": "shop", "open_telemetry_metrics": block}))
        run.start()
        trace_epoch(run, TIMES)
        run.close()
        spans = {span.name: span for span in receiver.spans}
    root = spans.pop("epoch 7")
    assert set(spans) == {"read", "transform", "sink table", "sink topic", "finalize"}
    assert all(span.parent_span_id == root.span_id and span.trace_id == root.trace_id for span in spans.values())
    milliseconds = {name: round((s.end_time_unix_nano - s.start_time_unix_nano) / 1e6) for name, s in spans.items()}
    assert milliseconds == {"read": 20, "transform": 30, "sink table": 40, "sink topic": 10, "finalize": 5}
    assert round((root.end_time_unix_nano - root.start_time_unix_nano) / 1e6) == 95
    assert {one.key: one.value.string_value or one.value.int_value for one in root.attributes} == {
        "epoch": 7,
        "rows": 100,
        "replayed": "true",
    }


def test_traces_are_off_unless_an_endpoint_is_set() -> None:
    run = Telemetry(Settings())
    run.start()
    assert run.tracer is None
    trace_epoch(run, TIMES)
    run.close()
