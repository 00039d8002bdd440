"""A server over HTTP: one client, and one classification of its errors.

not a valid URL                PermanentError
certificate not trusted        PermanentError, with a hint
no answer, or none in time     TransientError
an answer without end          PermanentError
408, 429, 5xx                  TransientError, unless the server's own rule says otherwise
any other status than 2xx      PermanentError
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from streamling.clients.tls import HOW_TO_TRUST, tls_context
from streamling.errors import Condition, PermanentError, StreamlingError, TransientError
from streamling.spec.mask import mask_text, mask_url, remember_url

if TYPE_CHECKING:
    import httpx

_RETRIABLE = (408, 429)
_MAX_ANSWER_CHARACTERS = 500
# The largest schemas and lists of columns have some megabytes. More than this is not an answer to our questions.
_MAX_ANSWER_BYTES = 64 << 20
# They describe the body as it was sent; ours is decoded.
_ENCODING_HEADERS = ("content-encoding", "content-length", "transfer-encoding")

Classify = Callable[["httpx.Response"], type[StreamlingError]]
"""The error for an answer that is not a success."""


def classify_status(response: httpx.Response) -> type[StreamlingError]:
    """The usual classification of a status."""
    status = response.status_code
    return TransientError if status >= 500 or status in _RETRIABLE else PermanentError


class HttpServer:
    """`name`: what messages call the server. `condition`: what its errors mean to the caller.

    A request takes at most `timeout` seconds, redirects and the whole answer included.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        condition: Condition,
        timeout: float,
        user: tuple[str, str] | None = None,
        headers: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
        classify: Classify = classify_status,
        follow_redirects: bool = False,
    ) -> None:
        import httpx

        remember_url(url)
        self._url = url
        self._name = name
        self._condition = condition
        self._classify = classify
        self._timeout = timeout
        self._cut = _CutOff()
        self._client = httpx.Client(
            auth=user,
            verify=tls_context(),  # also for http://, which may be redirected to https://
            timeout=timeout,
            follow_redirects=follow_redirects,
            headers=headers,
        )

    def close(self) -> None:
        self._client.close()

    def request(
        self, method: str, path: str = "", *, params: Mapping[str, str] | None = None, **content: Any
    ) -> httpx.Response:
        """Returns a successful answer. `params` are added to those of the URL; `content` is passed to httpx.

        Raises StreamlingError, classified as in the docstring of this module.
        """
        import httpx

        try:
            url = httpx.URL(self._url + path)
            with self._cut.after(self._timeout):
                response = self._answer(method, url.copy_merge_params(params) if params else url, **content)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            # Without the cause, which may quote a password as the port.
            message = f"the address of {self._name}, {self._address}, is not a valid URL"
            raise PermanentError(self._condition, message) from None
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error
        except (UnicodeError, OverflowError, OSError) as error:  # a redirect to a host or port that cannot be one
            raise self.unexpected_answer(error) from error
        if not response.is_success:
            to = f" to {path}" if path else ""
            answer = mask_text(_text_of(response).strip()[:_MAX_ANSWER_CHARACTERS])
            message = f"{self._name} at {self._address} answers {response.status_code}{to}: {answer}"
            raise self._classify(response)(self._condition, message)
        return response

    def json(self, method: str, path: str = "", **content: Any) -> Any:
        """The JSON of a successful answer."""
        response = self.request(method, path, **content)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise self.unexpected_answer(error) from error

    def _answer(self, method: str, url: httpx.URL, **content: Any) -> httpx.Response:
        """The whole answer, as long as it has an end."""
        import httpx

        body = bytearray()
        with self._client.stream(method, url, extensions={"trace": self._cut.trace}, **content) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _MAX_ANSWER_BYTES:
                    message = f"{self._name} at {self._address} answers with more than {_MAX_ANSWER_BYTES >> 20} MB"
                    raise PermanentError(self._condition, message)
        headers = [(k, v) for k, v in response.headers.raw if k.lower().decode("latin1") not in _ENCODING_HEADERS]
        return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)

    def unexpected_answer(self, cause: Exception | None = None) -> PermanentError:
        """The error for an answer of another form: the address belongs to another server."""
        message = f"{self._address} does not answer like {self._name}"
        return PermanentError(self._condition, message, cause=cause)

    @property
    def _address(self) -> str:
        return mask_url(self._url)

    def _no_answer(self, error: httpx.HTTPError) -> StreamlingError:
        reason = mask_text(str(error)) or type(error).__name__
        if self._cut.expired:
            reason = f"its answer was not complete after {self._timeout:g} s"
        if _is_untrusted(error):
            message = f"the certificate of {self._name} at {self._address} is not trusted: {reason}"
            return PermanentError(self._condition, message, hint=HOW_TO_TRUST, cause=error)
        message = f"{self._name} at {self._address} does not answer: {reason}"
        return TransientError(self._condition, message, cause=error)


class _CutOff:
    """Shuts down the connections of a client when a request takes too long.

    The timeout of the client begins again with every byte that arrives.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.expired = False

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the client for each step of a request."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    @contextmanager
    def after(self, seconds: float) -> Iterator[None]:
        self.expired = False
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        self.expired = True
        for connection in self._sockets:
            # A closed socket has no number, and one that TLS has taken over gave its number away.
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as link:
                link.shutdown(socket.SHUT_RDWR)


def _text_of(response: httpx.Response) -> str:
    try:
        return response.text
    except (UnicodeError, LookupError):  # another encoding than the one that the header names
        return response.content.decode(errors="replace")


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
