"""The data side of a handler: requests in flight, answers in the order of the rows.

Runs where the rows are. The connections of a process are made with its first rows, and kept.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.clients.http_post import Poster, PostOptions
from streamling.connector import BadRow, Counted, Epoch, RequestKeys
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.transforms.handler.exchanges import Exchange, Exchanger, Request
    from streamling.transforms.handler.results import Results


@dataclass(frozen=True, slots=True)
class HandlerProcessor:
    """`batch_rows` make a batch, whose requests are sent one after the other; None: every request is on its own."""

    node: str
    post: PostOptions
    one_row: bool
    version: int
    batch_rows: int | None
    encoded_rows: int
    request_rows: int
    concurrency: int
    key: tuple[str, ...]
    """Its columns, if the input has all of them."""
    input_schema: Schema
    schema: Schema
    tolerant: bool
    """Whether a bad answer makes bad rows, instead of ending the run."""
    deduplicates: bool

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        client = client_of(self._share(epoch.tasks))
        try:
            yield from _Pass(self, client, epoch).run(batches)
        finally:
            client.poster.trim()
        yield from client.counts()

    def _share(self, tasks: int) -> HandlerProcessor:
        """What one of several tasks may do: a part of the requests in flight, and of those per second."""
        if tasks == 1:
            return self
        rate = self.post.max_per_second
        post = replace(self.post, max_per_second=None if rate is None else rate / tasks)
        return replace(self, post=post, concurrency=max(self.concurrency // tasks, 1))


class HandlerClient:
    """The connections and threads of one handler in one process."""

    def __init__(self, poster: Poster, concurrency: int, counts: AttemptCounts | None = None) -> None:
        self.poster = poster
        self.concurrency = concurrency
        self.pool = ThreadPoolExecutor(concurrency, thread_name_prefix="handler")
        self._counts = counts

    def counts(self) -> Iterator[Counted]:
        """The attempts since the last call, unless they are recorded immediately."""
        return iter(()) if self._counts is None else self._counts.take()

    def close(self) -> None:
        self.poster.cut()
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.poster.close()


class AttemptCounts:
    """Attempts of requests, on their way to the driver with the rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: Counter[str] = Counter()

    def record(self, outcome: str, status_class: str, milliseconds: float) -> None:
        # Two digits are enough for a histogram, and keep the number of different values small.
        series = json.dumps([outcome, status_class, float(f"{milliseconds:.2g}")])
        with self._lock:
            self._attempts[series] += 1

    def take(self) -> Iterator[Counted]:
        with self._lock:
            attempts, self._attempts = self._attempts, Counter()
        return (Counted(series, count) for series, count in attempts.items())


_clients: dict[HandlerProcessor, HandlerClient] = {}
_lock = threading.Lock()


def client_of(processor: HandlerProcessor) -> HandlerClient:
    """The client of this process, made with the first call."""
    with _lock:
        client = _clients.get(processor)
        if client is None:
            counts = AttemptCounts()
            client = HandlerClient(Poster(processor.post, counts.record), processor.concurrency, counts)
            _clients[processor] = client
        return client


def set_client(processor: HandlerProcessor, poster: Poster) -> None:
    """Let the processor use this poster in this process."""
    with _lock:
        _clients[processor] = HandlerClient(poster, processor.concurrency)


def close_client(processor: HandlerProcessor) -> None:
    with _lock:
        client = _clients.pop(processor, None)
    if client is not None:
        client.close()


class _Pass:
    """The rows of one epoch, or of one partition of it, on their way through the endpoint."""

    def __init__(self, options: HandlerProcessor, client: HandlerClient, epoch: Epoch) -> None:
        from streamling.transforms.handler.exchanges import Exchanger, Requests
        from streamling.transforms.handler.results import Results

        self._options = options
        self._client = client
        keys = RequestKeys(epoch, options.node)
        self._requests = Requests(options, keys)
        self._cancelled = threading.Event()
        self._exchanger: Exchanger = Exchanger(options, client.poster, keys, self._cancelled.is_set)
        self._results: Results = Results(options)
        self._latest: dict[str, Future[list[Exchange]]] = {}
        """By key of the rows: the last request of one-row mode."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow]:
        window: deque[Future[list[Exchange]]] = deque()
        # There are as many threads as there may be requests in flight. Some units wait for them, so that a thread has
        # its next request ready when an answer comes.
        waiting = 2 * self._client.concurrency + 2
        try:
            for unit in self._requests.units(batches):
                if len(window) >= waiting:
                    yield from self._results.add(window.popleft().result())
                window.append(self._submit(unit))
            while window:
                yield from self._results.add(window.popleft().result())
            yield from self._results.flush()
        except BaseException:
            self._cancelled.set()
            for future in window:
                future.cancel()
            self._client.poster.cut()
            raise

    def _submit(self, unit: list[Request]) -> Future[list[Exchange]]:
        row_key = unit[0].row_key
        if row_key is None:
            return self._client.pool.submit(self._exchanger.send, unit)
        # Threads take requests in the order in which they are submitted, so the one waited for has begun.
        send = _after(self._latest.get(row_key), self._exchanger.send)
        future = self._latest[row_key] = self._client.pool.submit(send, unit)
        if len(self._latest) > 10 * self._client.concurrency:
            self._latest = {key: latest for key, latest in self._latest.items() if not latest.done()}
        return future


def _after(
    earlier: Future[list[Exchange]] | None, send: Callable[[list[Request]], list[Exchange]]
) -> Callable[[list[Request]], list[Exchange]]:
    if earlier is None or earlier.done():
        return send

    def wait_and_send(unit: list[Request]) -> list[Exchange]:
        wait([earlier])
        return send(unit)

    return wait_and_send
