"""OTLP receivers on this machine: HTTP with protobuf or JSON, and gRPC. OTLP's own classes decode what arrives."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from support.http_server import Answer, Request, recording_server

Labels = dict[str, str]


@dataclass(frozen=True)
class Series:
    """One series as it arrived last; of a delta, the sum of all that have arrived."""

    name: str
    type: str
    unit: str
    temporality: str
    labels: Labels
    resource: Labels
    value: float
    """Of a histogram the sum."""
    count: int = 0
    bounds: tuple[float, ...] = ()
    buckets: tuple[int, ...] = ()


@dataclass
class Receiver:
    """What has arrived."""

    endpoint: str = ""
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def accept(self, request: ExportMetricsServiceRequest) -> None:
        with self._lock:
            self.requests.append(request)

    def series(self, name: str | None = None, **labels: str) -> list[Series]:
        """The series with this name, prefix included, and these labels."""
        found: dict[Any, Series] = {}
        with self._lock:
            requests = list(self.requests)
        for request in requests:
            for one in _all_series(request):
                key = (one.name, *sorted(one.labels.items()))
                before = found.get(key)
                if before is not None and one.temporality == "DELTA":
                    one = Series(**{**one.__dict__, "value": one.value + before.value})
                found[key] = one
        return [
            one
            for one in found.values()
            if name in (None, one.name) and all(one.labels.get(key) == value for key, value in labels.items())
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the only such series; None if there is none."""
        found = self.series(name, **labels)
        assert len(found) < 2, found
        return found[0].value if found else None

    @property
    def spans(self) -> list[Any]:
        with self._lock:
            return [s for r in self.traces for t in r.resource_spans for c in t.scope_spans for s in c.spans]


def _all_series(request: ExportMetricsServiceRequest) -> Iterator[Series]:
    for resource in request.resource_metrics:
        about = _labels(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                temporality = getattr(data, "aggregation_temporality", 0)
                word = AggregationTemporality.Name(temporality).removeprefix("AGGREGATION_TEMPORALITY_")
                for point in data.data_points:
                    facts = (metric.name, kind, metric.unit, word, _labels(point.attributes), about)
                    if kind == "histogram":
                        buckets = (tuple(point.explicit_bounds), tuple(point.bucket_counts))
                        yield Series(*facts, point.sum, point.count, *buckets)
                    else:
                        yield Series(*facts, getattr(point, point.WhichOneof("value")))


def _labels(attributes: Any) -> Labels:
    return {one.key: one.value.string_value for one in attributes}


@contextmanager
def http_receiver(answers: Sequence[Answer] = ()) -> Iterator[Receiver]:
    """Takes metrics at /v1/metrics and traces at /v1/traces. The first requests get these `answers`; those that are
    not accepted are not decoded."""
    receiver = Receiver()
    left = list(answers)

    def respond(request: Request) -> Answer:
        receiver.headers.append(request.headers)
        answer = left.pop(0) if left else Answer(body=b"")
        if answer.status >= 300 or answer.fault:
            return answer
        message = ExportTraceServiceRequest() if request.path == "/v1/traces" else ExportMetricsServiceRequest()
        body = request.body
        if request.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        if request.headers["content-type"] == "application/json":
            json_format.Parse(body, message)
        else:
            message.ParseFromString(body)
        if isinstance(message, ExportTraceServiceRequest):
            receiver.traces.append(message)
        else:
            receiver.accept(message)
        return answer

    with recording_server(respond) as server:
        receiver.endpoint = f"{server.url}/v1/metrics"
        yield receiver


@contextmanager
def grpc_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: ExportMetricsServiceRequest, context: Any) -> ExportMetricsServiceResponse:
            receiver.accept(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    receiver.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield receiver
    finally:
        server.stop(None)
