"""`webhook`: rows posted to a URL."""

from __future__ import annotations

from pydantic import Field

from streamling.connector import Kind, register
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.endpoint import Endpoint
from streamling.spec.pipeline.options import Batched, SingleStream, SinkOptions


class WebhookOptions(Endpoint, SingleStream, Batched, SinkOptions):
    """Rows are sent in order, one request at a time per stream; the body of the answer is not read."""

    identity_labels = ("url",)

    skip_on_error: bool = Field(
        default=False, description="Drop rows that the endpoint rejects; transient errors are still retried."
    )


register(Kind(Role.SINK, "webhook", WebhookOptions))
