"""A ClickHouse server, over its HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamling import __version__
from streamling.clients.http import HttpServer, classify_status
from streamling.errors import SCHEMA_NOT_FOUND, Condition, PermanentError, StreamlingError
from streamling.spec.settings.blocks import ClickHouseConnection

if TYPE_CHECKING:
    import httpx

# The server says "500" to what it refuses for lack of a right, too.
_ACCESS_DENIED = "497"


class ClickHouse:
    """A server as the settings of a connection name it. Every request takes `timeout` seconds at most."""

    def __init__(
        self,
        connection: ClickHouseConnection,
        *,
        application_id: str,
        timeout: float,
        condition: Condition = SCHEMA_NOT_FOUND,
    ) -> None:
        self._server = HttpServer(
            connection.url,
            name="ClickHouse",
            condition=condition,
            timeout=timeout,
            user=(connection.user, connection.password.reveal()),
            # As bytes, because names may have any letters.
            headers={
                b"User-Agent": f"streamling/{__version__} app={application_id}".encode(),
                b"X-ClickHouse-Database": connection.database.encode(),
            },
            classify=_classify,
        )

    def __enter__(self) -> ClickHouse:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def rows(self, query: str, **parameters: str) -> list[list[Any]]:
        """The rows a query gives. Where it says `{name:Type}`, the parameter of that name is put.

        Raises TransientError if asking again may help, else PermanentError.
        """
        content = self._server.json(
            "POST",
            params={f"param_{name}": _escape(value) for name, value in parameters.items()},
            content=f"{query} FORMAT JSONCompact".encode(),
        )
        rows = content.get("data") if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise self._server.unexpected_answer()
        return rows


def _classify(response: httpx.Response) -> type[StreamlingError]:
    denied = response.headers.get("X-ClickHouse-Exception-Code") == _ACCESS_DENIED
    return PermanentError if denied else classify_status(response)


def _escape(value: str) -> str:
    """A parameter as the server wants it: as in a field of tab-separated values."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
