"""One HTTP request at a time, with a deadline for the whole exchange, over connections that are kept open."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

from streamling.clients.deadline import Deadline, shut_down
from streamling.clients.tls import tls_context

if TYPE_CHECKING:
    import httpx

# They describe the body as it was sent; ours is decoded.
_ENCODING_HEADERS = (b"content-encoding", b"content-length", b"transfer-encoding")
_NEW_CONNECTION = ("connection.connect_tcp.complete", "connection.start_tls.complete")
# A connection that was idle for longer may have been closed by the server, or by something in between.
_IDLE_S = 20.0


class AnswerTooLong(Exception):
    """An answer has more bytes than the caller accepts."""


class HttpChannel:
    """Not for several threads at once. An exchange takes at most `timeout` seconds, the whole answer included;
    `connect_timeout` limits the part until there is a connection."""

    def __init__(
        self,
        timeout: float,
        *,
        connect_timeout: float | None = None,
        auth: tuple[str, str] | None = None,
        headers: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
        follow_redirects: bool = False,
    ) -> None:
        import httpx

        self._timeout = timeout
        self._sockets: list[Any] = []
        self._deadline = Deadline(self.cut)
        self.reading = False
        """Whether the head of the answer has arrived, and its body is being read."""
        connect = timeout if connect_timeout is None else min(connect_timeout, timeout)
        self._client = httpx.Client(
            auth=auth,
            verify=tls_context(),  # also for http://, which may be redirected to https://
            timeout=httpx.Timeout(timeout, connect=connect),
            limits=httpx.Limits(keepalive_expiry=_IDLE_S),
            follow_redirects=follow_redirects,
            headers=headers,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none: requests do not depend on earlier ones
        )

    @property
    def expired(self) -> bool:
        """Whether the last exchange ended because it took too long."""
        return self._deadline.expired

    def close(self) -> None:
        self._deadline.close()
        self._client.close()

    def exchange(
        self, method: str, url: httpx.URL | str, *, max_bytes: int, seconds: float | None = None, **content: Any
    ) -> httpx.Response:
        """The whole answer, within `seconds` if they are given. Raises AnswerTooLong, or the errors of httpx."""
        import httpx

        self.reading = False
        body = bytearray()
        with self._deadline.within(self._timeout if seconds is None else seconds):
            with self._client.stream(method, url, extensions={"trace": self._trace}, **content) as response:
                self.reading = True
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > max_bytes:
                        raise AnswerTooLong
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _ENCODING_HEADERS]
        return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the client for each step of a request."""
        if event in _NEW_CONNECTION:
            self._sockets = [s for s in self._sockets if s.fileno() >= 0]
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    def cut(self) -> None:
        """End the exchange; called from another thread, also when it takes too long. The timeout of the client begins
        again with every byte that arrives; this one does not."""
        for connection in list(self._sockets):
            if (number := connection.fileno()) >= 0:
                shut_down(number)


def is_untrusted(error: BaseException | None) -> bool:
    """Whether a request failed because of the certificate of the server."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
