"""A server over HTTP: one client, and one classification of its errors.

not a valid URL                PermanentError
certificate not trusted        PermanentError, with a hint
no answer, or none in time     TransientError
an answer without end          PermanentError
408, 429, 5xx                  TransientError, unless the server's own rule says otherwise
any other status than 2xx      PermanentError
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamling.clients.http_channel import AnswerTooLong, BadRedirect, HttpChannel, basic_authorization, is_untrusted
from streamling.clients.tls import HOW_TO_TRUST
from streamling.errors import Condition, PermanentError, StreamlingError, TransientError
from streamling.spec.mask import mask_text, mask_url, remember_url

if TYPE_CHECKING:
    import httpx

_RETRIABLE = (408, 429)
_MAX_ANSWER_CHARACTERS = 500
# The largest schemas and lists of columns have some megabytes. More than this is not an answer to our questions.
_MAX_ANSWER_BYTES = 64 << 20

Classify = Callable[["httpx.Response"], Callable[[Condition, str], StreamlingError]]
"""Makes the error for an answer that is not a success."""


def classify_status(response: httpx.Response) -> type[StreamlingError]:
    """The usual classification of a status."""
    return TransientError if is_retriable(response.status_code) else PermanentError


def is_retriable(status: int) -> bool:
    return status >= 500 or status in _RETRIABLE


class HttpServer:
    """`name`: what messages call the server. `condition`: what its errors mean to the caller.

    A request takes at most `timeout` seconds, redirects and the whole answer included; `connect_timeout` limits the
    part until there is a connection.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        condition: Condition,
        timeout: float,
        connect_timeout: float | None = None,
        user: tuple[str, str] | None = None,
        headers: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
        classify: Classify = classify_status,
        follow_redirects: bool = False,
    ) -> None:
        remember_url(url)
        self._url = url
        self._name = name
        self._condition = condition
        self._classify = classify
        self._timeout = timeout
        self._headers = headers or {}
        self._private = basic_authorization(*user) if user is not None else {}
        self._follow_redirects = follow_redirects
        self._channel = HttpChannel(timeout, connect_timeout=connect_timeout)

    def close(self) -> None:
        self._channel.close()

    @property
    def expired(self) -> bool:
        """Whether the last request ended because it took too long."""
        return self._channel.expired

    def request(
        self,
        method: str,
        path: str = "",
        *,
        params: Mapping[str, str] | None = None,
        encoding: str | None = None,
        **content: Any,
    ) -> httpx.Response:
        """Returns a successful answer. `params` are added to those of the URL; `encoding`: how the body is compressed;
        `content` is passed to httpx.

        Raises StreamlingError, classified as in the docstring of this module.
        """
        with self.classified():
            url = self._full_url(path, params)
            response = self._answer(method, url, encoding, **content)
        self._check(response, path)
        return response

    def stream(
        self,
        method: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[bytes, bytes] | None = None,
        **content: Any,
    ) -> httpx.Response:
        """The head of a successful answer, whose body the caller reads, inside of `classified`, and closes. `timeout`
        applies to every piece of the body. Raises StreamlingError, as `request` does."""
        with self.classified():
            url = self._full_url("", params)
            response = self._channel.stream(
                method, url, headers=(self._headers, headers or {}), private=self._private, **content
            )
            if not response.is_success:
                try:
                    response.read()
                finally:
                    response.close()
        self._check(response, "")
        return response

    @contextmanager
    def classified(self) -> Iterator[None]:
        """Raises the errors of httpx as StreamlingError, classified as in the docstring of this module."""
        import httpx

        try:
            yield
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            # Without the cause, which may quote a password as the port.
            message = f"the address of {self._name}, {self._address}, is not a valid URL"
            raise PermanentError(self._condition, message) from None
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error
        except (
            BadRedirect,
            UnicodeError,
            OverflowError,
            OSError,
        ) as error:  # a redirect to a host or port that cannot be one
            raise self.unexpected_answer(error) from error

    def _full_url(self, path: str, params: Mapping[str, str] | None) -> httpx.URL:
        import httpx

        url = httpx.URL(self._url + path)
        return url.copy_merge_params(params) if params else url

    def _check(self, response: httpx.Response, path: str) -> None:
        if not response.is_success:
            raise self.failure(response, path)

    def failure(self, response: httpx.Response, path: str = "") -> StreamlingError:
        """The error for an answer that is not a success."""
        to = f" to {path}" if path else ""
        message = f"{self._name} at {self._address} answers {response.status_code}{to}: {quote(response)}"
        return self._classify(response)(self._condition, message)

    def json(self, method: str, path: str = "", **content: Any) -> Any:
        """The JSON of a successful answer."""
        response = self.request(method, path, **content)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise self.unexpected_answer(error) from error

    def _answer(self, method: str, url: httpx.URL, encoding: str | None, **content: Any) -> httpx.Response:
        """The whole answer, as long as it has an end."""
        own = {"Content-Encoding": encoding, **self._private} if encoding is not None else self._private
        try:
            return self._channel.exchange(
                method,
                url,
                max_bytes=_MAX_ANSWER_BYTES,
                headers=self._headers,
                private=own,
                follows=self._follow_redirects,
                **content,
            )
        except AnswerTooLong:
            message = f"{self._name} at {self._address} answers with more than {_MAX_ANSWER_BYTES >> 20} MB"
            raise PermanentError(self._condition, message) from None

    def unexpected_answer(self, cause: Exception | None = None) -> PermanentError:
        """The error for an answer of another form: the address belongs to another server."""
        message = f"{self._address} does not answer like {self._name}"
        return PermanentError(self._condition, message, cause=cause)

    @property
    def _address(self) -> str:
        return mask_url(self._url)

    def _no_answer(self, error: httpx.HTTPError) -> StreamlingError:
        reason = mask_text(str(error)) or type(error).__name__
        if self._channel.expired:
            reason = f"timed out: its answer was not complete after {self._timeout:.2g} s"
        if is_untrusted(error):
            message = f"the certificate of {self._name} at {self._address} is not trusted: {reason}"
            return PermanentError(self._condition, message, hint=HOW_TO_TRUST, cause=error)
        message = f"{self._name} at {self._address} does not answer: {reason}"
        return TransientError(self._condition, message, cause=error)


def quote(response: httpx.Response) -> str:
    """The beginning of an answer, for messages."""
    try:
        text = response.text
    except (UnicodeError, LookupError):  # another encoding than the one that the header names
        text = response.content.decode(errors="replace")
    return quote_text(text)


def quote_text(text: str) -> str:
    return mask_text(text.strip()[:_MAX_ANSWER_CHARACTERS])
