"""The export of metrics over OTLP: every interval, and a last time at the end of a run.

An export that fails is logged; the next one sends the same cumulative values, so nothing is lost.

The increments of `output_rows_delta` have requests of their own: a Prometheus, which does not take increments unless it
is told to, refuses the whole request that they are in. They are kept until a receiver has accepted them.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from streamling.spec.mask import mask_text, mask_url
from streamling.telemetry import destination as to
from streamling.telemetry.destination import Destination
from streamling.telemetry.metrics import PREFIX, Metrics

if TYPE_CHECKING:
    import httpx
    from opentelemetry.sdk.metrics.export import Metric, MetricExporter, MetricsData, NumberDataPoint

log = logging.getLogger(__name__)

REQUEST_S = 10.0
"""Timeout of a request."""
LAST_S = 5.0
"""Time of the last export at the end of a run."""
_ROWS = f"{PREFIX}output_rows"
_DELTA_NAME = "output_rows_delta"
_DELTA = f"{PREFIX}{_DELTA_NAME}"
# A receiver that refuses increments will probably refuse the next ones, and every attempt is an error in the log. Once
# may be a coincidence.
_REFUSALS = 2
_REFUSED_S = 300.0
# These write a line for every attempt of a request; the error at the end says the same.
_CHATTY = "opentelemetry.exporter.otlp.proto"


class Sender(Protocol):
    """Sends one request. Returns whether the receiver has accepted it; may raise."""

    def send(self, data: MetricsData) -> bool: ...


class MetricExport:
    """A thread that sends the metrics of a run."""

    def __init__(self, metrics: Metrics, receiver: Destination, interval_s: float) -> None:
        self._metrics = metrics
        self._receiver = receiver
        self._interval_s = interval_s
        self._sender: Sender | None = None
        self._deltas = Deltas()
        self._sends_deltas = metrics.allows(_DELTA_NAME)
        self._refusals = 0
        """How often in a row the increments did not arrive, although everything else did."""
        self._refused_until = 0.0
        """When they are sent again."""
        self._ending = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="export metrics", daemon=True)

    def start(self) -> None:
        """Import the client and begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Send a last time, for at most 5 s."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(LAST_S)
        if self._thread.is_alive():
            log.warning("the last metrics were not sent to %s within %.0f s", self._receiver.described, LAST_S)

    def _run(self) -> None:
        try:
            self._sender = make_sender(self._receiver)
        except Exception as error:  # whatever is wrong, the pipeline runs
            log.warning("metrics are not exported: the client did not start: %s", error)
            return
        while not self._ending.wait(self._interval_s):
            self._send()
        self._send(is_last=True)

    def _send(self, *, is_last: bool = False) -> None:
        data = self._read()
        if data is None:
            return
        sent = self._request(self._metrics.allowed(data))
        if not sent and not self._failed:
            log.warning("metrics do not reach %s; the pipeline goes on", self._receiver.described)
        self._failed = not sent
        if sent and self._sends_deltas and (is_last or time.monotonic() >= self._refused_until):
            self._send_deltas(data)

    def _send_deltas(self, data: MetricsData) -> None:
        deltas = self._deltas.of(data)
        if deltas is None:
            return
        if self._request(deltas):
            self._deltas.sent()
            self._refusals = 0
            return
        self._refusals += 1
        if self._refusals >= _REFUSALS:
            self._refused_until = time.monotonic() + _REFUSED_S
        if self._refusals == _REFUSALS:
            log.warning(
                "%s accepts metrics, but not the increments of %s, which are kept and sent again later. Prometheus "
                "accepts them with --enable-feature=otlp-deltatocumulative; to send none, add %s to "
                "open_telemetry_metrics.metric_deny_list",
                self._receiver.described,
                _DELTA_NAME,
                _DELTA_NAME,
            )

    def _read(self) -> MetricsData | None:
        try:
            return self._metrics.data()
        except Exception as error:  # gauges are read now, by functions of nodes
            log.error("metrics could not be read: %s", error)
            return None

    def _request(self, data: MetricsData) -> bool:
        """Whether the receiver has accepted it."""
        try:
            return self._sender is not None and self._sender.send(data)
        except Exception as error:
            log.error("metrics could not be sent to %s: %s", self._receiver.described, error)
            return False


class Deltas:
    """Derives the increments of `output_rows` since the last export that has succeeded."""

    def __init__(self) -> None:
        self._sent: dict[frozenset[tuple[str, object]], tuple[float, int]] = {}
        """By labels: the value and the time of the last export."""
        self._current: dict[frozenset[tuple[str, object]], tuple[float, int]] = {}

    def of(self, data: MetricsData) -> MetricsData | None:
        """The increments since then; None if no row was added."""
        from opentelemetry.sdk.metrics.export import MetricsData

        resources = [
            replace(resource, scope_metrics=[replace(scope, metrics=metrics)])
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            if (metrics := list(self._increments(scope.metrics)))
        ]
        return MetricsData(resources) if resources else None

    def sent(self) -> None:
        """The increments have arrived."""
        self._sent = dict(self._current)

    def _increments(self, metrics: Sequence[Metric]) -> Iterator[Metric]:
        from opentelemetry.sdk.metrics.export import AggregationTemporality, NumberDataPoint, Sum

        for metric in metrics:
            if metric.name == _ROWS:
                numbers = (point for point in metric.data.data_points if isinstance(point, NumberDataPoint))
                points = [point for point in map(self._increment, numbers) if point.value]
                if points:
                    yield replace(metric, name=_DELTA, data=Sum(points, AggregationTemporality.DELTA, True))

    def _increment(self, point: NumberDataPoint) -> NumberDataPoint:
        labels = frozenset((point.attributes or {}).items())
        value, at = self._sent.get(labels, (0.0, point.start_time_unix_nano))
        self._current[labels] = (point.value, point.time_unix_nano)
        return replace(point, start_time_unix_nano=at, value=point.value - value)


def make_sender(receiver: Destination) -> Sender:
    """Imports only the client that is needed."""
    quieten_clients()
    if receiver.protocol is to.Protocol.JSON:
        return JsonSender(receiver.endpoint)
    return _BinarySender(receiver)


def quieten_clients() -> None:
    logging.getLogger(_CHATTY).setLevel(logging.ERROR)


def http_session() -> Any:
    """For the clients of OTLP over HTTP, which take a redirection for success. None if the environment sets one."""
    if any(name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ):
        return None
    import requests

    session = requests.Session()
    session.hooks["response"] += [_refuse_redirection, _check_acceptance]
    return session


def _refuse_redirection(answer: Any, **_: object) -> None:
    if 300 <= answer.status_code < 400:
        target = mask_url(answer.headers.get("location", "another address"))
        raise ValueError(f"the receiver answered {answer.status_code}: use {target} as the endpoint")


def _check_acceptance(answer: Any, **_: object) -> None:
    """The answer to traces has the same fields as that to metrics."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

    try:
        rejection = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    except DecodeError:  # some receivers answer with a text
        return
    _log_rejection(answer.url, rejection.rejected_data_points, rejection.error_message)


def _log_rejection(url: str, count: int, reason: str) -> None:
    """A receiver has accepted a request, but not all that is in it. The protocol forbids to send the rest again."""
    if count > 0:
        log.error("%s has rejected %d metrics or spans: %s", mask_url(url), count, mask_text(reason[:200]))


class _BinarySender:
    def __init__(self, receiver: Destination) -> None:
        if receiver.protocol is to.Protocol.GRPC:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

            self._exporter: MetricExporter = GrpcExporter(
                endpoint=receiver.channel, insecure=receiver.insecure, timeout=REQUEST_S
            )
        else:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

            self._exporter = HttpExporter(endpoint=receiver.endpoint, timeout=REQUEST_S, session=http_session())

    def send(self, data: MetricsData) -> bool:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        return self._exporter.export(data, timeout_millis=REQUEST_S * 1000) is MetricExportResult.SUCCESS


class JsonSender:
    """OTLP/JSON: the protobuf message as JSON, with enums as numbers."""

    def __init__(self, endpoint: str) -> None:
        self._client = JsonClient(endpoint, "METRICS")

    def send(self, data: MetricsData) -> bool:
        from google.protobuf import json_format  # type: ignore[import-untyped]
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

        self._client.post(json_format.MessageToDict(encode_metrics(data), use_integers_for_enums=True))
        return True


class JsonClient:
    """Posts messages as JSON, with the headers that the environment has for a `signal`, as for the other clients."""

    def __init__(self, endpoint: str, signal: str) -> None:
        import httpx

        self._endpoint = endpoint
        headers = {**_headers(signal), "Content-Type": "application/json"}
        self._client = httpx.Client(timeout=REQUEST_S, headers=headers)

    def post(self, message: Mapping[str, object]) -> None:
        """Raises if the receiver does not accept it."""
        answer = self._client.post(self._endpoint, content=json.dumps(message))
        if not answer.is_success:
            raise ValueError(f"the receiver answered {answer.status_code} {answer.text[:200]}")
        _log_rejection(self._endpoint, *_rejection(answer))


def _rejection(answer: httpx.Response) -> tuple[int, str]:
    try:
        found = answer.json()["partialSuccess"]
        count = found.get("rejectedDataPoints") or found.get("rejectedSpans") or 0
        return int(count), str(found.get("errorMessage", ""))
    except (ValueError, LookupError, TypeError, AttributeError):  # some receivers answer with nothing, or with a text
        return 0, ""


def _headers(signal: str) -> dict[str, str]:
    from opentelemetry.util.re import parse_env_headers

    names = (f"OTEL_EXPORTER_OTLP_{signal}_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
    text = next((os.environ[name] for name in names if name in os.environ), "")
    return dict(parse_env_headers(text, liberal=True))
