"""Traces: an epoch is a trace; reading, computing, each sink and the finalization are its spans.

The spans are made from the times of a finalized epoch, so tracing costs nothing while rows flow.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamling.telemetry.destination import Destination, Protocol
from streamling.telemetry.export import LAST_S, REQUEST_S, JsonClient, http_session, quieten_clients

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)


class Tracer:
    """Sends spans in the background, in batches."""

    def __init__(self, receiver: Destination, resource: Mapping[str, str]) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        self._receiver = receiver
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource(dict(resource)), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_exporter(receiver), schedule_delay_millis=1000))
        self._tracer = self._provider.get_tracer("streamling")

    def record(self, name: str, began: float, seconds: float, parts: Sequence[Span], **attributes: str | int) -> None:
        """A trace of one span with parts. `began` is unix time."""
        from opentelemetry.trace import set_span_in_context

        root = self._tracer.start_span(name, start_time=_nanoseconds(began), attributes=attributes)
        inside = set_span_in_context(root)
        for part in parts:
            span = self._tracer.start_span(
                part.name, context=inside, start_time=_nanoseconds(part.began), attributes=dict(part.attributes)
            )
            span.end(end_time=_nanoseconds(part.began + part.seconds))
        root.end(end_time=_nanoseconds(began + seconds))

    def close(self) -> None:
        """Send what was not sent yet, for at most 5 s. The SDK would wait for a receiver that does not answer."""
        sending = threading.Thread(target=self._shut_down, name="export traces", daemon=True)
        sending.start()
        sending.join(LAST_S)
        if sending.is_alive():
            log.warning("the last traces were not sent to %s within %.0f s", self._receiver.described, LAST_S)

    def _shut_down(self) -> None:
        try:
            self._provider.force_flush()
            self._provider.shutdown()
        except Exception as error:  # the run is over; its traces are not worth an error
            log.warning("the last traces were not sent: %s", error)


class Span:
    """A part of a trace."""

    def __init__(self, name: str, began: float, seconds: float, **attributes: str | int) -> None:
        self.name = name
        self.began = began
        self.seconds = max(seconds, 0.0)
        self.attributes = attributes


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def _exporter(receiver: Destination) -> SpanExporter:
    quieten_clients()
    if receiver.protocol is Protocol.GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter(endpoint=receiver.channel, insecure=receiver.insecure, timeout=REQUEST_S)
    if receiver.protocol is Protocol.PROTOBUF:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        return HttpExporter(endpoint=receiver.endpoint, timeout=REQUEST_S, session=http_session())
    return _json_exporter(receiver)


def _json_exporter(receiver: Destination) -> SpanExporter:
    from google.protobuf import json_format  # type: ignore[import-untyped]
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class JsonSpanExporter(SpanExporter):
        def __init__(self) -> None:
            self._client = JsonClient(receiver.endpoint, "TRACES")

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            message = json_format.MessageToDict(encode_spans(spans), use_integers_for_enums=True)
            try:
                self._client.post(_with_hex_ids(message))
            except Exception as error:
                log.error("traces could not be sent to %s: %s", receiver.described, error)
                return SpanExportResult.FAILURE
            return SpanExportResult.SUCCESS

    return JsonSpanExporter()


def _with_hex_ids(message: Any) -> Any:
    """OTLP/JSON has ids in hexadecimal, where protobuf's JSON has base64."""
    import base64

    if isinstance(message, list):
        return [_with_hex_ids(one) for one in message]
    if not isinstance(message, dict):
        return message
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64decode(value).hex() if key in ids else _with_hex_ids(value) for key, value in message.items()
    }
