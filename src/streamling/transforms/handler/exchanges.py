"""Rows as requests, and requests as answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamling.clients.http_post import Poster, Refused
from streamling.connector import RequestKeys
from streamling.errors import HTTP_FAILED, TransientError
from streamling.formats.arrow import rebatch
from streamling.formats.json_encoding import key_texts
from streamling.formats.json_payloads import PayloadEncoder, join_objects, refused_operations

if TYPE_CHECKING:
    from streamling.transforms.handler.processor import HandlerProcessor


@dataclass(frozen=True, slots=True)
class Request:
    """`rows` and their objects in the body. A request without objects is not sent: `problem` is wrong with its row."""

    rows: pa.RecordBatch
    objects: Sequence[bytes]
    key: str = ""
    row_key: str | None = None
    """The key of the row, if requests with the same one must not overtake each other."""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its answer: a body, or why there is none."""

    rows: pa.RecordBatch
    answer: bytes | Refused | str
    """Text: what is wrong with the row itself."""


class Requests:
    """Turns rows into units of requests that are sent one after the other."""

    def __init__(self, options: HandlerProcessor, keys: RequestKeys) -> None:
        self._options = options
        self._keys = keys
        self._encoder = PayloadEncoder(options.input_schema, options.version)
        self._sent: dict[bytes, str] = {}
        """The keys of the bodies so far, if equal ones are sent once."""

    def units(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Request]]:
        options = self._options
        for batch in rebatch(batches, options.batch_rows or options.encoded_rows):
            requests = list(self._requests(batch))
            if options.batch_rows is None:
                yield from ([request] for request in requests)
            elif requests:
                yield requests

    def _requests(self, batch: pa.RecordBatch) -> Iterator[Request]:
        problems = refused_operations(batch)
        start = 0
        for index in sorted(problems):
            yield from self._encode(batch.slice(start, index - start))
            yield Request(batch.slice(index, 1), (), problem=problems[index])
            start = index + 1
        yield from self._encode(batch.slice(start))

    def _encode(self, batch: pa.RecordBatch) -> Iterator[Request]:
        if not batch.num_rows:
            return
        options = self._options
        objects = self._encoder.objects(batch)
        if not options.one_row:
            for start in range(0, len(objects), options.request_rows):
                chosen = objects[start : start + options.request_rows]
                yield Request(batch.slice(start, len(chosen)), chosen, self._key(join_objects(chosen)))
            return
        row_keys: list[str | None] = [None] * len(objects)
        if options.key:
            row_keys = key_texts(batch, options.key, options.input_schema).to_pylist()
        for index, object_ in enumerate(objects):
            yield Request(batch.slice(index, 1), (object_,), self._key(object_), row_keys[index])

    def _key(self, body: bytes) -> str:
        if not self._options.deduplicates:
            return self._keys.key(body)
        if body not in self._sent:
            self._sent[body] = self._keys.key(body)
        return self._sent[body]


class Exchanger:
    """Sends units; several threads may do so at once."""

    def __init__(
        self, options: HandlerProcessor, poster: Poster, keys: RequestKeys, cancelled: Callable[[], bool]
    ) -> None:
        self._options = options
        self._poster = poster
        self._keys = keys
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._answers: dict[bytes, Future[bytes]] = {}
        """By body, if equal ones are sent once."""

    def send(self, unit: list[Request]) -> list[Exchange]:
        """Raises Refused if the run does not tolerate it; TransientError if the run stops."""
        return [exchange for request in unit for exchange in self._exchange(request)]

    def _exchange(self, request: Request) -> Iterator[Exchange]:
        if request.problem is not None:
            yield Exchange(request.rows, request.problem)
            return
        if self._cancelled():
            raise TransientError(HTTP_FAILED, "the epoch has failed", node=self._options.post.node)
        body = request.objects[0] if self._options.one_row else join_objects(request.objects)
        try:
            answer: bytes | Refused = self._post(body, request.key)
        except Refused as refused:
            if not self._options.tolerant:
                raise
            if len(request.objects) > 1:  # one of the rows is at fault
                for half in self._halves(request):
                    yield from self._exchange(half)
                return
            answer = refused
        yield Exchange(request.rows, answer)

    def _halves(self, request: Request) -> Iterator[Request]:
        middle = len(request.objects) // 2
        for start, end in ((0, middle), (middle, len(request.objects))):
            objects = request.objects[start:end]
            yield Request(request.rows.slice(start, end - start), objects, self._keys.key(join_objects(objects)))

    def _post(self, body: bytes, key: str) -> bytes:
        if not self._options.deduplicates:
            return self._poster.post(body, key, self._cancelled)
        with self._lock:
            answer = self._answers.get(body)
            is_first = answer is None
            if answer is None:
                answer = self._answers[body] = Future()
        if is_first:
            try:
                answer.set_result(self._poster.post(body, key, self._cancelled))
            except BaseException as error:
                answer.set_exception(error)
        return answer.result()
