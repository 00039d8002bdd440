"""A ClickHouse server, over its HTTP interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamling import __version__
from streamling.clients.clickhouse_errors import classify_exception, exception_number
from streamling.clients.http import HttpServer
from streamling.errors import SCHEMA_NOT_FOUND, Condition
from streamling.spec.settings.blocks import ClickHouseConnection


class ClickHouse:
    """The server of a connection in the settings. A request takes at most `timeout` seconds."""

    def __init__(
        self,
        connection: ClickHouseConnection,
        *,
        application_id: str,
        timeout: float,
        connect_timeout: float | None = None,
        condition: Condition = SCHEMA_NOT_FOUND,
    ) -> None:
        self._server = HttpServer(
            connection.url,
            name="ClickHouse",
            condition=condition,
            timeout=timeout,
            connect_timeout=connect_timeout,
            user=(connection.user, connection.password.reveal()),
            # As bytes, because names may contain any characters.
            headers={
                b"User-Agent": f"streamling/{__version__} app={application_id}".encode(),
                b"X-ClickHouse-Database": connection.database.encode(),
            },
            classify=classify_exception,
        )

    def __enter__(self) -> ClickHouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
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

    def execute(self, statement: str, settings: Mapping[str, str] | None = None) -> None:
        """Run a statement that returns no rows. Raises as `rows` does."""
        self._run(settings or {}, statement.encode())

    def insert(self, statement: str, body: bytes, settings: Mapping[str, str], encoding: str | None = None) -> None:
        """Send rows in the format that the statement names; `encoding`: how the body is compressed.

        Raises ValueRejected if a row is at fault, otherwise as `rows` does.
        """
        self._run({**settings, "query": statement}, body, encoding)

    def _run(self, params: Mapping[str, str], content: bytes, encoding: str | None = None) -> None:
        # The server answers when it has finished: otherwise it may fail after it has sent the status.
        params = {**params, "wait_end_of_query": "1"}
        response = self._server.request("POST", params=params, content=content, encoding=encoding)
        if exception_number(response) is not None:
            raise self._server.failure(response)


def _escape(value: str) -> str:
    """A parameter as the server expects it: escaped like a field of tab-separated values."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
