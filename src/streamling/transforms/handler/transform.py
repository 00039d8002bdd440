"""The control side of a handler."""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamling.clients.http_endpoint import batch_rows, post_options, recorder
from streamling.clients.http_post import Poster
from streamling.connector import (
    Placement,
    Runtime,
    Transform,
    TransformCapabilities,
    TransformContext,
    batch_policy,
)
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.endpoint import Endpoint
from streamling.spec.pipeline.options import OnError
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics
from streamling.transforms.handler.processor import HandlerProcessor, close_client, set_client


class HandlerTransform(Transform):
    def __init__(self, node: NodeSpec, settings: Settings) -> None:
        if not isinstance(node.options, Endpoint):
            raise TypeError(node.options)
        self.capabilities = TransformCapabilities(Placement.ANY, same_rows=True, batch=batch_policy(node.options))
        self._node = node
        self._options = node.options
        self._settings = settings
        self._metrics = Metrics()
        self._record = recorder(node, lambda: self._metrics)
        self._runtime: Runtime | None = None
        self._processor: HandlerProcessor | None = None
        self._poster: Poster | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._metrics = runtime.metrics

    def open(self, context: TransformContext) -> None:
        runtime = self._runtime
        if runtime is None:
            raise AssertionError("not attached")
        self._processor = self._make_processor(context)
        # In this process attempts are recorded when they end, and a stop ends the retries.
        self._poster = Poster(
            self._processor.post,
            self._record,
            stopping=runtime.ends_retries,
            sleep=runtime.pause,
            advance=runtime.advance,
        )
        set_client(self._processor, self._poster)

    def _make_processor(self, context: TransformContext) -> HandlerProcessor:
        options, limits = self._options, self._settings.external_http_handler
        rows = batch_rows(self._node, self._settings)
        is_single = options.one_row_per_request and self._node.options.batch_limits[0] is None
        return HandlerProcessor(
            node=context.node,
            post=post_options(self._node, self._settings),
            one_row=options.one_row_per_request,
            version=options.payload_version,
            batch_rows=None if is_single else rows,
            encoded_rows=rows,
            request_rows=limits.trigger_max_count,
            concurrency=self._node.options.streams or limits.buffer_size,
            key=context.primary_key if all(name in context.input_schema for name in context.primary_key) else (),
            input_schema=context.input_schema,
            schema=context.schema,
            tolerant=self._node.options.on_error is not OnError.FAIL,
            deduplicates=options.deduplicate_requests,
        )

    def processor(self) -> HandlerProcessor:
        if self._processor is None:
            raise AssertionError("not opened")
        return self._processor

    def count(self, counts: Mapping[str, int]) -> None:
        """Attempts that were made in workers."""
        for series, count in counts.items():
            outcome, status_class, milliseconds = json.loads(series)
            for _ in range(count):
                self._record(outcome, status_class, milliseconds)

    def trouble(self) -> str | None:
        return self._poster.trouble if self._poster is not None else None

    def close(self) -> None:
        if self._processor is not None:
            close_client(self._processor)
