"""`webhook`: rows posted to a URL.

Delivery: at least once. A request that was sent cannot be taken back, so an epoch that is replayed after a crash sends
its rows again, in the same requests. The header `Idempotency-Key` is the same for every attempt of a request and in
every replay: an endpoint that remembers the keys it has seen gets each row once.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import Field

from streamling.clients.http_endpoint import batch_rows, post_options, recorder
from streamling.clients.http_post import Poster, PostOptions, Refused
from streamling.connector import (
    BadRow,
    Epoch,
    Kind,
    Report,
    RequestKeys,
    Runtime,
    Sink,
    SinkCapabilities,
    SinkContext,
    Task,
    batch_policy,
    register,
)
from streamling.errors import HTTP_FAILED
from streamling.sinks.streams import Cancelled, run_streams
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.endpoint import Endpoint
from streamling.spec.pipeline.options import Batched, OnError, SingleStream, SinkOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.formats.json_payloads import PayloadEncoder

log = logging.getLogger(__name__)
# Time between two log lines about skipped requests.
_REMIND_S = 1.0


class WebhookOptions(Endpoint, SingleStream, Batched, SinkOptions):
    """Rows are sent in order, one request at a time per stream; the body of the answer is not read."""

    identity_labels = ("url",)

    skip_on_error: bool = Field(
        default=False,
        description="Drop rows whose request is answered with any status other than 2xx. Requests without an answer "
        "are still retried.",
    )


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How rows become requests: `batch_rows` make a batch, which is sent in requests of at most `request_rows`."""

    one_row: bool
    batch_rows: int
    request_rows: int
    deduplicates: bool
    skips: bool
    on_error: OnError


@dataclass(frozen=True, slots=True)
class _OpenEndpoint:
    """What `open` makes."""

    poster: Poster
    encoder: PayloadEncoder
    context: SinkContext


class WebhookSink(Sink):
    def __init__(self, node: NodeSpec, settings: Settings) -> None:
        if not isinstance(node.options, WebhookOptions):
            raise TypeError(node.options)
        options = node.options
        self.capabilities = SinkCapabilities(batch=batch_policy(options), same_rows=True)
        self._node = node
        self._settings = settings
        self._options = options
        self._requests = RequestOptions(
            one_row=options.one_row_per_request,
            batch_rows=batch_rows(node, settings),
            request_rows=settings.external_http_handler.trigger_max_count,
            deduplicates=options.deduplicate_requests,
            skips=options.skip_on_error,
            on_error=options.on_error,
        )
        self._skips = _SkipLog(node.described())
        self._runtime: Runtime | None = None
        self._opened: _OpenEndpoint | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def open(self, context: SinkContext) -> None:
        from streamling.formats.json_payloads import PayloadEncoder

        runtime = self._runtime
        if runtime is None:
            raise AssertionError("not attached")
        self._opened = _OpenEndpoint(
            Poster(
                self._post_options(),
                recorder(self._node, lambda: runtime.metrics),
                stopping=runtime.ends_retries,
                sleep=runtime.pause,
                advance=runtime.advance,
            ),
            PayloadEncoder(context.schema, self._options.payload_version),
            context,
        )

    def _post_options(self) -> PostOptions:
        return post_options(self._node, self._settings, retries_statuses=not self._requests.skips)

    @property
    def _endpoint(self) -> _OpenEndpoint:
        if self._opened is None:
            raise AssertionError("not opened")
        return self._opened

    def writer(self) -> WebhookSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        import pyarrow as pa

        # All of them before the first request: if Spark fails to compute some, none was sent.
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return Report()
        rows = pa.concat_batches(held)
        bad = self._unsendable(rows)
        if bad and self._requests.on_error is OnError.FAIL:
            return Report(0, len(bad), bad)
        cancelled = threading.Event()
        streams = [
            _Stream(
                self._endpoint,
                self._requests,
                rows,
                indexes,
                RequestKeys(epoch, self._endpoint.context.node),
                cancelled,
                self._skips,
            )
            for indexes in self._divide(rows, {row.index for row in bad})
        ]
        run_streams(streams, f"webhook {self._node.name}")
        self._endpoint.poster.trim()
        self._skips.flush()
        rejected = sorted((*bad, *(row for stream in streams for row in stream.bad)), key=lambda row: row.index or 0)
        return Report(
            sum(stream.delivered for stream in streams),
            len(rejected),
            tuple(rejected),
            skipped=sum(stream.skipped for stream in streams),
        )

    def _unsendable(self, rows: pa.RecordBatch) -> tuple[BadRow, ...]:
        from streamling.formats.json import json_row
        from streamling.formats.json_payloads import refused_operations

        return tuple(
            BadRow("unknown_operation", text, {}, row=json_row(rows, index), index=index)
            for index, text in refused_operations(rows).items()
        )

    def _divide(self, rows: pa.RecordBatch, excluded: set[int | None]) -> list[Sequence[int]]:
        """The numbers of the rows of each stream: rows of one key are in one stream, in order."""
        from streamling.formats.json_encoding import key_texts

        context = self._endpoint.context
        everything = range(rows.num_rows)
        numbers: Sequence[int] = [n for n in everything if n not in excluded] if excluded else everything
        if context.width == 1:
            return [numbers]
        keys = key_texts(rows, context.primary_key, context.schema).to_pylist()
        streams: list[list[int]] = [[] for _ in range(context.width)]
        for number in numbers:
            streams[zlib.crc32(keys[number].encode()) % context.width].append(number)
        return [stream for stream in streams if stream] or [[]]

    def trouble(self) -> str | None:
        return self._opened.poster.trouble if self._opened is not None else None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.poster.close()


@dataclass(slots=True)
class _Stream:
    """Sends some of the rows of an epoch, one request after the other."""

    endpoint: _OpenEndpoint
    options: RequestOptions
    rows: pa.RecordBatch
    indexes: Sequence[int]
    keys: RequestKeys
    cancelled: threading.Event
    skips: _SkipLog
    delivered: int = 0
    skipped: int = 0
    bad: list[BadRow] = field(default_factory=list)
    sent: set[bytes] = field(default_factory=set)
    """The bodies so far, where equal ones are sent once."""
    refused: dict[bytes, Refused] = field(default_factory=dict)
    """Those of them that the endpoint has refused."""

    def run(self) -> None:
        size = self.options.batch_rows
        try:
            for start in range(0, len(self.indexes), size):
                self._send_batch(self.indexes[start : start + size])
        except BaseException:
            self.cancelled.set()
            raise

    def _send_batch(self, indexes: Sequence[int]) -> None:
        objects = self.endpoint.encoder.objects(self._take(indexes))
        size = 1 if self.options.one_row else self.options.request_rows
        for start in range(0, len(indexes), size):
            self._send(objects[start : start + size], indexes[start : start + size])

    def _take(self, indexes: Sequence[int]) -> pa.RecordBatch:
        import pyarrow as pa

        if isinstance(indexes, range):
            return self.rows.slice(indexes.start, len(indexes))
        return self.rows.take(pa.array(indexes, pa.int64()))

    def _send(self, objects: Sequence[bytes], indexes: Sequence[int]) -> None:
        from streamling.formats.json_payloads import join_objects

        if self.cancelled.is_set():
            raise Cancelled(HTTP_FAILED, "another stream has failed")
        body = objects[0] if self.options.one_row else join_objects(objects)
        if self.options.deduplicates:
            if body in self.refused:
                self._refuse(self.refused[body], objects, indexes)
                return
            if body in self.sent:
                self.delivered += len(indexes)
                return
            self.sent.add(body)
        try:
            self.endpoint.poster.post(body, self.keys.key(body))
        except Refused as refused:
            if self.options.deduplicates:
                self.refused[body] = refused
            self._refuse(refused, objects, indexes)
        else:
            self.delivered += len(indexes)

    def _refuse(self, refused: Refused, objects: Sequence[bytes], indexes: Sequence[int]) -> None:
        from streamling.formats.json import json_row

        if self.options.skips:
            self.skipped += len(indexes)
            self.skips.add(len(indexes), refused.message)
        elif self.options.on_error is OnError.FAIL:
            raise refused
        elif len(indexes) == 1:
            row, cause = json_row(self.rows, indexes[0]), f"HTTP {refused.status}"
            self.bad.append(BadRow("http_status", refused.message, {}, row=row, index=indexes[0], cause=cause))
        else:  # one of the rows is at fault
            middle = len(indexes) // 2
            self._send(objects[:middle], indexes[:middle])
            self._send(objects[middle:], indexes[middle:])


class _SkipLog:
    """Logs skipped requests: the first one immediately, then at most one line a second."""

    def __init__(self, described: str) -> None:
        self._described = described
        self._lock = threading.Lock()
        self._rows = 0
        self._message = ""
        self._last = float("-inf")

    def add(self, rows: int, message: str) -> None:
        with self._lock:
            self._rows += rows
            self._message = message
            if time.monotonic() - self._last >= _REMIND_S:
                self._log()

    def flush(self) -> None:
        """Log what was added since the last line."""
        with self._lock:
            if self._rows:
                self._log()

    def _log(self) -> None:
        rows = "1 row is" if self._rows == 1 else f"{self._rows} rows are"
        log.warning("%s: %s skipped, the last: %s", self._described, rows, self._message)
        self._rows = 0
        self._last = time.monotonic()


def _build(node: NodeSpec, settings: Settings) -> WebhookSink:
    return WebhookSink(node, settings)


register(Kind(Role.SINK, "webhook", WebhookOptions, _build))
