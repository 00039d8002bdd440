"""Where metrics and traces are sent. What is wrong with these settings is a warning: it never stops a pipeline."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from streamling.spec.mask import mask_url
from streamling.spec.settings.blocks import OpenTelemetryMetrics
from streamling.telemetry.metrics import PREFIX

log = logging.getLogger(__name__)

OFF = ("", "none")
"""Endpoints that turn the export off without a warning; the second is the default."""


class Protocol(Enum):
    JSON = "http/json"
    PROTOBUF = "http/protobuf"
    GRPC = "grpc"


_PROTOCOLS = {
    "": Protocol.PROTOBUF,
    **{protocol.value: protocol for protocol in Protocol},
    "httpjson": Protocol.JSON,
    "httpbinary": Protocol.PROTOBUF,
}


@dataclass(frozen=True, slots=True)
class Destination:
    """An OTLP receiver."""

    endpoint: str
    protocol: Protocol

    @property
    def described(self) -> str:
        return f"{mask_url(self.endpoint)} ({self.protocol.value})"

    @property
    def channel(self) -> str:
        """For gRPC: scheme, host and port. Its client takes a password for a part of the host, and logs it."""
        parts = urlsplit(self.endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def insecure(self) -> bool:
        """Whether the connection is without TLS."""
        return urlsplit(self.endpoint).scheme == "http"


def find_destination(endpoint: str, protocol: str, what: str) -> Destination | None:
    """None if `what`, such as "metrics", is not exported; a warning says why, unless that is the default."""
    endpoint = endpoint.strip()
    if endpoint.lower() in OFF:
        return None
    if not _is_address(endpoint):
        log.warning("%s are not exported: the endpoint '%s' is not a URL", what, mask_url(endpoint))
        return None
    known = _PROTOCOLS.get(protocol.strip().lower())
    if known is None:
        choices = ", ".join(one.value for one in Protocol)
        log.warning("%s are not exported: '%s' is not a protocol; there are: %s", what, protocol, choices)
        return None
    if known is Protocol.GRPC and "@" in urlsplit(endpoint).netloc:
        hint = "gRPC has none: set OTEL_EXPORTER_OTLP_HEADERS"
        log.warning("user and password in the endpoint of %s are ignored, because %s", what, hint)
    return Destination(endpoint, known)


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket or a port that is not valid
        return False


def parse_tags(text: str) -> dict[str, str]:
    """`k:v,k2:v2`. A pair that is not valid is left out with a warning."""
    tags: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (part.strip() for part in pair.partition(":"))
        if not key or not value or ":" in value:
            log.warning("'%s' in open_telemetry_metrics.global_tags is ignored: it is not a pair key:value", pair)
        else:
            tags[key] = value
    return tags


@dataclass(frozen=True, slots=True)
class DenyList:
    """Names of metrics that are not exported."""

    patterns: tuple[re.Pattern[str], ...] = ()

    def denies(self, name: str) -> bool:
        """`name` with the prefix. A pattern may match anywhere, with or without the prefix."""
        bare = name.removeprefix(PREFIX)
        return any(pattern.search(bare) or pattern.search(name) for pattern in self.patterns)


def parse_deny_list(text: str) -> DenyList:
    """Comma-separated regular expressions. One that is not valid is ignored with a warning."""
    patterns = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            patterns.append(re.compile(part))
        except re.error as error:
            log.warning("'%s' in open_telemetry_metrics.metric_deny_list is ignored: %s", part, error)
    return DenyList(tuple(patterns))


def traces_destination(settings: OpenTelemetryMetrics) -> Destination | None:
    return find_destination(settings.traces_endpoint, settings.endpoint_protocol, "traces")


def metrics_destination(settings: OpenTelemetryMetrics) -> Destination | None:
    return find_destination(settings.ingestion_endpoint, settings.endpoint_protocol, "metrics")
