"""Rows posted to a URL: requests with retries, for handlers and webhooks.

2xx                                                              success
no answer, none in time, one that breaks off, 408, 429, 5xx      retried until it succeeds or the run stops
certificate not trusted, answer without end                      PermanentError
any other status, too many redirects                             Refused
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from streamling import __version__
from streamling.clients.http import is_retriable, quote
from streamling.clients.http_channel import (
    MAX_REDIRECTS,
    REDIRECTS,
    AnswerTooLong,
    BadRedirect,
    HttpChannel,
    is_untrusted,
)
from streamling.clients.http_gates import gate_of
from streamling.clients.tls import HOW_TO_TRUST
from streamling.errors import HTTP_FAILED, PermanentError, TransientError
from streamling.retry import retry
from streamling.spec.mask import mask_text, mask_url, remember_url
from streamling.spec.secret import Secret

if TYPE_CHECKING:
    import httpx

KEY_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "X-Streamling-Signature"
_CONNECT_S = 10.0
# More than this is not an answer to rows.
_MAX_ANSWER_BYTES = 256 << 20
# A server that asks for a longer pause is asked again after this one.
_MAX_RETRY_AFTER_S = 300.0
# Connections that stay open while there are no requests.
_IDLE_CONNECTIONS = 4
# How soon the end of the run ends a pause between two attempts.
_CHECK_S = 0.2

Record = Callable[[str, str, float], object]
"""Gets the outcome, the class of the status and the milliseconds of every attempt."""


@dataclass(frozen=True, slots=True)
class PostOptions:
    """Where and how requests are sent. Picklable, and equal if the requests are."""

    url: str
    described: str
    """What messages call the node."""
    node: str
    headers: tuple[tuple[str, Secret], ...]
    """Those of the node and of its secret."""
    timeout_s: float
    retries_statuses: bool = True
    """False: an answer is final whatever its status; only requests without an answer are retried."""
    max_per_second: float | None = None
    sign_with: Secret | None = None
    compressed: bool = False


class Refused(PermanentError):
    """The endpoint has answered, and a retry cannot change the answer."""

    def __init__(self, message: str, status: int, node: str) -> None:
        super().__init__(HTTP_FAILED, message, node=node)
        self.status = status


class Poster:
    """Posts bodies; several threads may do so at once. Waits while the endpoint does not answer."""

    def __init__(
        self,
        options: PostOptions,
        record: Record,
        *,
        stopping: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], object] = time.sleep,
        advance: Callable[[], object] = lambda: None,
    ) -> None:
        """`advance` is called for every request that is not sent again."""
        import httpx

        remember_url(options.url)
        self._options = options
        self._record = record
        self._stopping = stopping
        self._sleep = sleep
        self._advance = advance
        self._url = httpx.URL(options.url)
        self._gate = gate_of(self._url.netloc.decode())
        self._own_headers = {name: value.reveal() for name, value in options.headers}
        self._names = {name.lower() for name in self._own_headers}
        self._lock = threading.Lock()
        self._idle: list[HttpChannel] = []
        self._busy: set[HttpChannel] = set()
        self._troubles: dict[int, str] = {}
        """By thread."""

    def post(self, body: bytes, key: str, cancelled: Callable[[], bool] = lambda: False) -> bytes:
        """The body of a successful answer. Raises Refused; TransientError only when the run stops or the request is
        cancelled."""

        def is_over() -> bool:
            return self._stopping() or cancelled()

        def sleep(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0 and not is_over():
                self._sleep(min(left, _CHECK_S))

        content = gzip.compress(body, mtime=0) if self._options.compressed else body
        headers = self._headers(content, key)
        return retry(
            lambda: self._attempt(content, headers, sleep),
            what=f"a request of {self._options.described}",
            stopping=is_over,
            sleep=sleep,
            on_trouble=self._note_trouble,
        )

    @property
    def trouble(self) -> str | None:
        """Why requests are being retried at the moment."""
        return next(iter(list(self._troubles.values())), None)

    def trim(self) -> None:
        """Close the connections that a pause in the requests makes superfluous."""
        with self._lock:
            superfluous, self._idle = self._idle[:-_IDLE_CONNECTIONS], self._idle[-_IDLE_CONNECTIONS:]
        for channel in superfluous:
            channel.close()

    def cut(self) -> None:
        """End the requests that are in flight: they fail at once."""
        with self._lock:
            busy = list(self._busy)
        for channel in busy:
            channel.cut()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for channel in idle:
            channel.close()

    def _headers(self, content: bytes, key: str) -> dict[str, str]:
        """Those that streamling sets itself; the node may replace them."""
        headers = {"Content-Type": "application/json", "User-Agent": f"streamling/{__version__}", KEY_HEADER: key}
        if self._options.compressed:
            headers["Content-Encoding"] = "gzip"
        if self._options.sign_with is not None:
            headers[SIGNATURE_HEADER] = sign(content, self._options.sign_with)
        return {name: value for name, value in headers.items() if name.lower() not in self._names}

    def _attempt(self, content: bytes, headers: dict[str, str], sleep: Callable[[float], object]) -> bytes:
        import httpx

        self._gate.pass_through(self._options.max_per_second, sleep)
        began = time.monotonic()
        with self._channel() as channel:
            try:
                response = channel.exchange(
                    "POST",
                    self._url,
                    max_bytes=_MAX_ANSWER_BYTES,
                    headers=headers,
                    private=self._own_headers,
                    content=content,
                )
            except (BadRedirect, httpx.UnsupportedProtocol, UnicodeError, OverflowError):
                self._note(began, "non_retriable_error", "3xx")
                message = f"{self._subject}: the endpoint redirects to something that is not a URL"
                raise Refused(message, 302, self._options.node) from None
            except AnswerTooLong:
                self._note(began, "non_retriable_error", "body_read_error")
                message = f"{self._subject}: an answer has more than {_MAX_ANSWER_BYTES >> 20} MB"
                raise PermanentError(HTTP_FAILED, message, node=self._options.node) from None
            except (httpx.HTTPError, OSError) as error:
                raise self._no_answer(channel, error, began) from error
        return self._accept(response, began)

    def _accept(self, response: httpx.Response, began: float) -> bytes:
        status = response.status_code
        status_class = f"{status // 100}xx"
        if response.is_success:
            self._note(began, "success", status_class)
            return response.content
        message = f"{self._subject}: the endpoint answers {status}: {quote(response)}"
        if self._options.retries_statuses and is_retriable(status):
            self._note(began, "retriable_error", status_class)
            error = TransientError(HTTP_FAILED, message, node=self._options.node)
            error.wait_s = retry_after(response.headers.get("retry-after"))
            if error.wait_s is not None:
                self._gate.hold(error.wait_s)
            raise error
        self._note(began, "non_retriable_error", status_class)
        if status in REDIRECTS and "location" in response.headers:
            message = f"{self._subject}: the endpoint answers with more than {MAX_REDIRECTS} redirects"
        raise Refused(message, status, self._options.node)

    def _no_answer(self, channel: HttpChannel, error: Exception, began: float) -> PermanentError | TransientError:
        import httpx

        reason = mask_text(str(error)) or type(error).__name__
        if is_untrusted(error):
            self._note(began, "non_retriable_error", "network_error")
            message = f"{self._subject}: the certificate of the endpoint is not trusted: {reason}"
            return PermanentError(HTTP_FAILED, message, node=self._options.node, hint=HOW_TO_TRUST)
        expired = channel.expired
        timed_out = expired or isinstance(error, httpx.TimeoutException)
        status_class = "timeout" if timed_out else "body_read_error" if channel.reading else "network_error"
        self._note(began, "retriable_error", status_class)
        if expired:
            reason = f"timed out: its answer was not complete after {self._options.timeout_s:g} s"
        message = f"{self._subject}: the endpoint does not answer: {reason}"
        return TransientError(HTTP_FAILED, message, node=self._options.node)

    @property
    def _subject(self) -> str:
        return f"{self._options.described}, {mask_url(self._options.url)}"

    def _note(self, began: float, outcome: str, status_class: str) -> None:
        self._record(outcome, status_class, (time.monotonic() - began) * 1000)
        if outcome != "retriable_error":
            self._advance()

    def _note_trouble(self, trouble: str | None) -> None:
        thread = threading.get_ident()
        if trouble is None:
            self._troubles.pop(thread, None)
        else:
            self._troubles[thread] = trouble

    @contextmanager
    def _channel(self) -> Iterator[HttpChannel]:
        """The channel that was used last, so that as few connections as possible stay open."""
        with self._lock:
            channel = self._idle.pop() if self._idle else None
        if channel is None:
            channel = HttpChannel(self._options.timeout_s, connect_timeout=_CONNECT_S)
        with self._lock:
            self._busy.add(channel)
        try:
            yield channel
        finally:
            with self._lock:
                self._busy.discard(channel)
                self._idle.append(channel)


def sign(content: bytes, secret: Secret) -> str:
    """The signature of a body as it is sent."""
    return "sha256=" + hmac.new(secret.reveal().encode(), content, hashlib.sha256).hexdigest()


def retry_after(header: str | None) -> float | None:
    """The seconds that an answer asks to wait: a number, or the time until a date."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_S) if seconds == seconds else None
