"""A ClickHouse server, over its HTTP interface."""

from __future__ import annotations

from typing import Any

from streamling import __version__
from streamling.errors import SCHEMA_NOT_FOUND, PermanentError, StreamlingError, TransientError
from streamling.spec.blocks import ClickHouseConnection
from streamling.spec.secret import mask_url

_RETRIABLE = (408, 429)
# The server says "500" to what it refuses for lack of a right, too.
_ACCESS_DENIED = "497"
_LONGEST_SHOWN = 500


class ClickHouse:
    """A server as the settings of a connection name it. Every request takes `timeout` seconds at most."""

    def __init__(self, connection: ClickHouseConnection, *, application_id: str, timeout: float) -> None:
        import httpx

        self._url = connection.url
        self._client = httpx.Client(
            auth=(connection.user, connection.password.reveal()),
            timeout=timeout,
            # As bytes, because names may have any letters.
            headers={
                b"User-Agent": f"streamling/{__version__} app={application_id}".encode(),
                b"X-ClickHouse-Database": connection.database.encode(),
            },
        )

    def __enter__(self) -> ClickHouse:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def rows(self, query: str, **parameters: str) -> list[list[Any]]:
        """The rows a query gives. Where it says `{name:Type}`, the parameter of that name is put.

        Raises TransientError if asking again may help, else PermanentError.
        """
        import httpx

        place = mask_url(self._url)
        try:
            url = httpx.URL(self._url).copy_merge_params(
                {f"param_{name}": _escaped(value) for name, value in parameters.items()}
            )
            response = self._client.post(url, content=f"{query} FORMAT JSONCompact".encode())
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            # Without the cause, which may quote a password as the port.
            raise _failed(PermanentError, f"the address of ClickHouse, {place}, is no URL") from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise _failed(TransientError, f"ClickHouse at {place} does not answer: {reason}", error) from error
        if not response.is_success:
            raise self._refused(response.status_code, response.headers, response.text)
        try:
            found = response.json()["data"]
        except (ValueError, TypeError, KeyError) as error:
            raise _failed(PermanentError, f"{place} does not answer like ClickHouse", error) from error
        if not isinstance(found, list):
            raise _failed(PermanentError, f"{place} does not answer like ClickHouse")
        return found

    def _refused(self, status: int, headers: Any, text: str) -> StreamlingError:
        denied = headers.get("X-ClickHouse-Exception-Code") == _ACCESS_DENIED
        passing = (status >= 500 and not denied) or status in _RETRIABLE
        answer = text.strip()[:_LONGEST_SHOWN]
        message = f"ClickHouse at {mask_url(self._url)} says {status}: {answer}"
        return _failed(TransientError if passing else PermanentError, message)


def _escaped(value: str) -> str:
    """A parameter as the server wants it: as in a field of tab-separated values."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _failed(kind: type[StreamlingError], message: str, cause: Exception | None = None) -> StreamlingError:
    return kind(SCHEMA_NOT_FOUND, message, cause=cause)
