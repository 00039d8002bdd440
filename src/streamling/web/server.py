"""The server of the admin API: a thread with its own event loop, which ends with the run."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamling.spec.settings import Settings
from streamling.web.app import make_app
from streamling.web.view import RunView

log = logging.getLogger(__name__)

# A client has this long to send a request; then its connection is of no use to anyone.
_REQUEST_S = 10.0
_KEEP_ALIVE_S = 5
# More connections than dashboards and probes need, and fewer than the open files that a process may have.
_MOST_CONNECTIONS = 512
# The run is over: clients get the end of their streams, and nothing else.
_CLOSE_S = 0.2
_JOIN_S = 2.0


@contextmanager
def admin_api(view: RunView, settings: Settings) -> Iterator[AdminServer | None]:
    """Serve the admin API inside of the block. None if its address cannot be bound: the pipeline runs without it."""
    server = _start(view, settings)
    try:
        yield server
    finally:
        if server is not None:
            server.stop()


def _start(view: RunView, settings: Settings) -> AdminServer | None:
    host, port = settings.runtime.admin_api_host, settings.admin_api_port
    try:
        listener = _listen(host, port)
    except OSError as error:
        log.error("the admin API cannot listen on %s:%d, the pipeline runs without it: %s", host, port, error)
        return None
    server = AdminServer(view, settings, listener)
    server.start()
    log.info("the admin API listens on %s", server.url)
    if not settings.runtime.admin_api_is_local and not settings.runtime.admin_api_token:
        log.warning("the admin API shows rows to every machine that can reach it, without a token")
    return server


def _listen(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class AdminServer:
    def __init__(self, view: RunView, settings: Settings, listener: socket.socket) -> None:
        self._view = view
        self._settings = settings
        self._listener = listener
        self._host = settings.runtime.admin_api_host
        self.port: int = listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._server: _Server | None = None
        self._thread = threading.Thread(target=self._run, name="admin api", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all streams and the thread. A client that does not read cannot delay it."""
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop has ended
            return
        self._thread.join(_JOIN_S)

    def _end(self) -> None:
        if self._server is not None:
            self._server.closing.set()
        else:
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # the pipeline does not depend on it
            log.warning("the admin API has stopped: %s", error)
        finally:
            self._loop.close()
            self._listener.close()

    async def _serve(self) -> None:
        closing = asyncio.Event()
        config = uvicorn.Config(
            make_app(self._view, self._settings.runtime, closing),
            http=_Connection,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # a request that is wrong is the client's fault, and not worth a line in our log
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        self._server = _Server(config, closing)
        await self._server.serve([self._listener])


class _Server(uvicorn.Server):
    """Sleeps until the run is over: a pipeline without clients costs nothing."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(config)
        self.closing = closing

    async def main_loop(self) -> None:
        await self.closing.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        connections: Any = self.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        if connections:
            await asyncio.sleep(_CLOSE_S)
        for connection in list(connections):
            connection.transport.abort()


class _Connection(H11Protocol):
    """Limits what clients can hold: the number of connections, and the time until a request is complete."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # A stream of rows can only be ended this way if its client does not read.
        self.app_state = {**self.app_state, "transport": transport}
        if len(self.connections) > _MOST_CONNECTIONS:
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        if not self._waits_for_request:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_REQUEST_S, self._abort_late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def _waits_for_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _abort_late(self) -> None:
        self._deadline = None
        if self._waits_for_request:
            self.transport.abort()
