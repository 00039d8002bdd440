"""One HTTP request at a time, with a deadline for the whole exchange, over connections that are kept open.

Requests go to the transport of httpx directly: its client adds cookies, authentication and hooks, which take as much
time as the request itself.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

from streamling.clients.deadline import Deadline, shut_down
from streamling.clients.tls import tls_context

if TYPE_CHECKING:
    import httpx

# They describe the body as it was sent; ours is decoded.
_ENCODING_HEADERS = (b"content-encoding", b"content-length", b"transfer-encoding")
_DEFAULT_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
# The method and the body stay the same: rows must not get lost on the way.
REDIRECTS = (301, 302, 307, 308)
MAX_REDIRECTS = 10
# A connection that was idle for longer may have been closed by the server, or by something in between.
_IDLE_S = 20.0


class AnswerTooLong(Exception):
    """An answer has more bytes than the caller accepts."""


class BadRedirect(Exception):
    """A server redirects to something that is not the URL of a server."""


class HttpChannel:
    """Not for several threads at once. An exchange takes at most `timeout` seconds, redirects and the whole answer
    included; `connect_timeout` limits the part until there is a connection."""

    def __init__(self, timeout: float, *, connect_timeout: float | None = None) -> None:
        import httpx

        self._timeout = timeout
        self._proxies = getproxies()
        connect = timeout if connect_timeout is None else min(connect_timeout, timeout)
        self._timeouts = httpx.Timeout(timeout, connect=connect).as_dict()
        self._transports: dict[str | None, httpx.HTTPTransport] = {}
        """By proxy."""
        self._sockets: list[Any] = []
        self._deadline = Deadline(self.cut)
        self.reading = False
        """Whether the head of the answer has arrived, and its body is being read."""

    @property
    def expired(self) -> bool:
        """Whether the last exchange ended because it took too long."""
        return self._deadline.expired

    def close(self) -> None:
        self._deadline.close()
        for transport in self._transports.values():
            transport.close()

    def exchange(
        self,
        method: str,
        url: httpx.URL,
        *,
        max_bytes: int,
        headers: Mapping[str, str] | Mapping[bytes, bytes],
        private: Mapping[str, str],
        follows: bool = True,
        **content: Any,
    ) -> httpx.Response:
        """The whole answer, after at most ten redirects if it `follows` them. `private` headers, and the user in the
        URL, may be credentials: no other host gets them.

        Raises AnswerTooLong, BadRedirect, or the errors of httpx.
        """
        import httpx

        began, first = time.monotonic(), url
        own = {**_authorization(url), **private}
        for _ in range(MAX_REDIRECTS + 1):
            left = max(self._timeout - (time.monotonic() - began), 0.001)
            request = httpx.Request(
                method,
                url,
                headers=_merge(_DEFAULT_HEADERS, headers, own),
                extensions={"timeout": self._timeouts},
                **content,
            )
            response = self._exchange(request, max_bytes, left)
            location = response.headers.get("location")
            if not follows or location is None or response.status_code not in _redirects_of(method):
                break
            url = _redirect(url, location)
            if url.host != first.host or (first.scheme, url.scheme) == ("https", "http"):
                own = {}
        return response

    def stream(
        self,
        method: str,
        url: httpx.URL,
        *,
        headers: Sequence[Mapping[str, str] | Mapping[bytes, bytes]],
        private: Mapping[str, str],
        **content: Any,
    ) -> httpx.Response:
        """The head of an answer, whose body the caller reads and closes. `timeout` limits the wait for every piece of
        it: the reader of the body may be slow. Raises the errors of httpx, also while the body is read."""
        import httpx

        merged = _merge(_DEFAULT_HEADERS, *headers, {**_authorization(url), **private})
        request = httpx.Request(method, url, headers=merged, extensions={"timeout": self._timeouts}, **content)
        response = self._transport(url).handle_request(request)
        response.request = request
        return response

    def _exchange(self, request: httpx.Request, max_bytes: int, seconds: float) -> httpx.Response:
        import httpx

        self.reading = False
        body = bytearray()
        with self._deadline.within(seconds):
            response = self._transport(request.url).handle_request(request)
            response.request = request
            self.reading = True
            try:
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > max_bytes:
                        raise AnswerTooLong
            finally:
                response.close()
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _ENCODING_HEADERS]
        return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    def _transport(self, url: httpx.URL) -> httpx.HTTPTransport:
        import httpx

        from streamling.clients.http_network import Network

        proxy = _proxy_for(url, self._proxies) if self._proxies else None
        transport = self._transports.get(proxy)
        if transport is None:
            # TLS also for http://, which may be redirected to https://
            limits = httpx.Limits(max_keepalive_connections=1, keepalive_expiry=_IDLE_S)
            transport = httpx.HTTPTransport(verify=tls_context(), limits=limits, proxy=proxy)
            # The transport has no argument for it.
            transport._pool._network_backend = Network(self._note_socket)
            self._transports[proxy] = transport
        return transport

    def _note_socket(self, connection: Any) -> None:
        self._sockets = [s for s in self._sockets if s.fileno() >= 0]
        self._sockets.append(connection)

    def cut(self) -> None:
        """End the exchange; called from another thread, also when it takes too long. The timeout of the transport
        begins again with every byte that arrives; this one does not."""
        for connection in list(self._sockets):
            if (number := connection.fileno()) >= 0:
                shut_down(number)


def is_untrusted(error: BaseException | None) -> bool:
    """Whether a request failed because of the certificate of the server."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def basic_authorization(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _authorization(url: httpx.URL) -> dict[str, str]:
    """The header for the user in a URL."""
    if not url.userinfo:
        return {}
    return basic_authorization(unquote(url.username), unquote(url.password))


def _merge(*parts: Mapping[str, str] | Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Later headers replace earlier ones of the same name, in any case."""
    merged: dict[bytes, tuple[bytes, bytes]] = {}
    for part in parts:
        for name, value in part.items():
            raw = name.encode("ascii") if isinstance(name, str) else name
            merged[raw.lower()] = raw, value.encode("latin-1") if isinstance(value, str) else value
    return list(merged.values())


def _redirects_of(method: str) -> tuple[int, ...]:
    return (*REDIRECTS, 303) if method == "GET" else REDIRECTS


def _redirect(url: httpx.URL, location: str) -> httpx.URL:
    import httpx

    try:
        target = url.join(location)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise BadRedirect from error
    if target.scheme not in ("http", "https") or not target.host:
        raise BadRedirect
    return target


def _proxy_for(url: httpx.URL, proxies: Mapping[str, str]) -> str | None:
    """The proxy for this address, as the environment says: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY."""
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
