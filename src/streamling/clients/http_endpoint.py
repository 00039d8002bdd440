"""The endpoint of a node, with what the settings add: secrets, timeouts, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamling.clients.http_post import PostOptions, Record
from streamling.errors import SECRET_MISSING
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.endpoint import Endpoint, is_header_name, is_header_value
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings
from streamling.spec.settings.names import secret_name
from streamling.telemetry.labels import node_labels
from streamling.telemetry.metrics import Recording


def post_options(node: NodeSpec, settings: Settings, **more: Any) -> PostOptions:
    """Raises UserError SECRET_MISSING."""
    options = node.options
    if not isinstance(options, Endpoint):
        raise TypeError(options)
    return PostOptions(
        url=options.url,
        described=node.described(),
        node=node.name,
        headers=(*options.headers.items(), *_secret_header(node, options, settings)),
        timeout_s=settings.external_http_handler.operator_timeout_sec,
        max_per_second=options.max_requests_per_second,
        sign_with=_signing_secret(node, options, settings),
        compressed=options.compression == "gzip",
        **more,
    )


def batch_rows(node: NodeSpec, settings: Settings) -> int:
    """The rows of a batch: what the node asks for, else those of a batch of the sources."""
    return node.options.batch_limits[0] or settings.record_batch_size


def recorder(node: NodeSpec, metrics: Callable[[], Recording]) -> Record:
    """Counts every attempt of a node's requests."""
    labels = node_labels(node)

    def record(outcome: str, status_class: str, milliseconds: float) -> None:
        attempt = {**labels, "outcome": outcome, "status_class": status_class}
        recording = metrics()
        recording.count("http_requests", 1, attempt)
        recording.latency("http_request_latency", milliseconds, attempt)
        if outcome == "retriable_error":
            recording.count("http_retries", 1, {**labels, "status_class": status_class})

    return record


def _secret_header(node: NodeSpec, options: Endpoint, settings: Settings) -> list[tuple[str, Secret]]:
    if options.secret_name is None:
        return []
    name = secret_name(options.secret_name)
    header, value = settings.http_secret_header.get(name), _secret_value(node, "secret_name", name, settings)
    if not header:
        raise _missing(node, "secret_name", name, "HTTP_SECRET_HEADER", "the name of its header")
    if not is_header_name(header.reveal()):
        raise _missing(node, "secret_name", name, "HTTP_SECRET_HEADER", "a valid header name")
    if not is_header_value(value.reveal()):
        raise _missing(node, "secret_name", name, "HTTP_SECRET_VALUE", "one line of printable ASCII characters")
    if header.reveal().lower() in (own.lower() for own in options.headers):
        message = f"'secret_name': the secret '{options.secret_name}' has the name of a header that 'headers' has too"
        raise node.error(SECRET_MISSING, message, "headers", hint="remove the header from 'headers'")
    return [(header.reveal(), value)]


def _signing_secret(node: NodeSpec, options: Endpoint, settings: Settings) -> Secret | None:
    if options.sign_with is None:
        return None
    return _secret_value(node, "sign_with", secret_name(options.sign_with), settings)


def _secret_value(node: NodeSpec, field: str, name: str, settings: Settings) -> Secret:
    value = settings.http_secret_value.get(name)
    if not value:
        raise _missing(node, field, name, "HTTP_SECRET_VALUE", "its value")
    return value


def _missing(node: NodeSpec, field: str, name: str, setting: str, what: str) -> Exception:
    variable = f"STREAMLING__{setting}__{name.upper()}"
    message = f"'{field}': the secret '{name}' needs {what}, in the environment variable {variable}"
    return node.error(SECRET_MISSING, message, field)
