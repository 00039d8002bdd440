"""A ClickHouse server, over its HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamling import __version__
from streamling.clients.http import HttpServer, classify_status
from streamling.errors import SCHEMA_NOT_FOUND, Condition, PermanentError, StreamlingError
from streamling.spec.settings.blocks import ClickHouseConnection

if TYPE_CHECKING:
    import httpx

# The server answers 500 also when it denies access: this code tells the two apart.
_ACCESS_DENIED = "497"


class ClickHouse:
    """The server of a connection in the settings. A request takes at most `timeout` seconds."""

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
            # As bytes, because names may contain any characters.
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
        """The rows that a query returns; `{name:Type}` in it stands for the parameter of that name.

        Raises TransientError if a retry may help, else PermanentError.
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
    """A parameter as the server expects it: escaped like a field of tab-separated values."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
