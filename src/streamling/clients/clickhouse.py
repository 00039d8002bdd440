"""A ClickHouse server, over its HTTP interface."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streamling import __version__
from streamling.clients.clickhouse_errors import QueryTimeout, classify_exception, classify_number, exception_number
from streamling.clients.http import HttpServer, quote_text
from streamling.errors import SCHEMA_NOT_FOUND, Condition, StreamlingError, TransientError
from streamling.spec.mask import mask_url
from streamling.spec.settings.blocks import ClickHouseConnection

if TYPE_CHECKING:
    import httpx

_EXCEPTION = re.compile(rb"Code: (\d+)\. (DB::Exception: .{1,2000})", re.DOTALL)
# What the server writes after the text of an exception: its length and its tag.
_EXCEPTION_END = re.compile(r"\n\d+ \w+\s*__exception__\s*$")
_TAIL_BYTES = 16 << 10
_LOOPBACK = ("127.", "localhost", "::1")


class StreamedAnswer:
    """The body of an answer while it arrives; a file that Arrow can read.

    The server begins to answer before it has read all rows. An exception comes as text at the end of the body, and the
    connection is closed without the end of a body that HTTP demands.
    """

    closed = False

    def __init__(self, server: HttpServer, response: httpx.Response, classify: Failure) -> None:
        self._server = server
        self._pieces = response.iter_raw()
        self._failure = classify
        self._buffer: list[bytes] = []
        self._buffered = 0
        self.tail = b""
        """The last bytes that have arrived."""

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes; fewer only at the end of the body."""
        while size < 0 or self._buffered < size:
            piece = self._next()
            if not piece:
                break
            self._buffer.append(piece)
            self._buffered += len(piece)
        content = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        if size < 0 or size >= len(content):
            self._buffer, self._buffered = [], 0
            return content
        rest = content[size:]
        self._buffer, self._buffered = [rest], len(rest)
        return content[:size]

    def end(self, marker: bytes) -> None:
        """Read the rest, which must end with the marker; otherwise the answer is not complete. Nothing at all is."""
        while self._next():
            pass
        if not self.tail.endswith(marker) and self.tail:
            raise self._failure(self.tail) or self._failure.incomplete()

    def _next(self) -> bytes:
        try:
            with self._server.classified():
                piece = next(self._pieces, b"")
        except StreamlingError as error:
            raise self._failure(self.tail) or error from error
        self.tail = piece[-_TAIL_BYTES:] if len(piece) >= _TAIL_BYTES else (self.tail + piece)[-_TAIL_BYTES:]
        return piece

    def close(self) -> None:
        return

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class Failure:
    """Finds the exception of the server at the end of a body."""

    def __init__(self, connection: ClickHouseConnection, condition: Condition) -> None:
        self._address = mask_url(connection.url)
        self._condition = condition

    def __call__(self, tail: bytes) -> StreamlingError | None:
        found = list(_EXCEPTION.finditer(tail))
        if not found:
            return None
        code, text = found[-1][1].decode(), _EXCEPTION_END.sub("", found[-1][2].decode(errors="replace"))
        message = f"ClickHouse at {self._address} stopped while it sent rows: {quote_text(f'Code: {code}. {text}')}"
        return classify_number(int(code), TransientError)(self._condition, message)

    def incomplete(self) -> StreamlingError:
        message = f"ClickHouse at {self._address} sent an answer that is not complete"
        return TransientError(self._condition, message)


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
        self._connection = connection
        self._condition = condition
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
        with self._timeouts():
            content = self._server.json(
                "POST",
                params={f"param_{name}": _escape(value) for name, value in parameters.items()},
                content=f"{query} FORMAT JSONCompact".encode(),
            )
        rows = content.get("data") if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise self._server.unexpected_answer()
        return rows

    @contextmanager
    def stream(self, query: str) -> Iterator[StreamedAnswer]:
        """The body of the answer to a query that names its format. `timeout` limits the wait for every piece of it.

        Raises TransientError if a retry may help, else PermanentError; also from `read`.
        """
        # The format compresses by itself.
        with self._timeouts():
            response = self._server.stream("POST", headers={b"Accept-Encoding": b"identity"}, content=query.encode())
        try:
            yield StreamedAnswer(self._server, response, Failure(self._connection, self._condition))
        finally:
            response.close()

    @contextmanager
    def _timeouts(self) -> Iterator[None]:
        """Raises the timeout of a query as QueryTimeout. A server to which there is no connection has not timed out."""
        import httpx

        try:
            yield
        except TransientError as error:
            if self._server.expired or isinstance(error.__cause__, httpx.ReadTimeout):
                raise QueryTimeout(error.condition, error.message, cause=error.__cause__) from error
            raise

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


def is_local(connection: ClickHouseConnection) -> bool:
    """Whether the server is on this machine."""
    try:
        host = urlsplit(connection.url).hostname or ""
    except ValueError:
        return False
    return host.startswith(_LOOPBACK)


def _escape(value: str) -> str:
    """A parameter as the server expects it: escaped like a field of tab-separated values."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
