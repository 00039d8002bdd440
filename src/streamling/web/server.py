"""The server of the admin API: a thread with its own event loop, which ends with the run."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from streamling.spec.settings import Settings
from streamling.web.app import make_app
from streamling.web.connection import Connection
from streamling.web.view import RunView

log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 5
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
    except (OSError, ValueError) as error:  # ValueError: no name of a host
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
        self._closing = asyncio.Event()
        self._state = ServerState()
        self._thread = threading.Thread(target=self._run, name="admin api", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all streams and the thread. A client that does not read cannot delay it."""
        try:
            self._loop.call_soon_threadsafe(self._closing.set)
        except RuntimeError:  # the loop has ended
            return
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_note)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # the pipeline does not depend on it
            log.warning("the admin API has stopped: %s", error)
        finally:
            self._listener.close()
            self._loop.close()

    async def _serve(self) -> None:
        """Sleeps until the run is over: a pipeline without clients costs nothing."""
        config = self._config()
        server = await self._loop.create_server(lambda: Connection(config, self._state, {}), sock=self._listener)
        await self._closing.wait()
        server.close()
        await self._close_connections()

    async def _close_connections(self) -> None:
        connections: Any = self._state.connections
        for connection in list(connections):
            with suppress(Exception):  # in the middle of a request that is not valid
                connection.shutdown()
        if connections:
            await asyncio.sleep(_CLOSE_S)
        for connection in list(connections):
            connection.transport.abort()
        if tasks := list(self._state.tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CLOSE_S)

    def _config(self) -> uvicorn.Config:
        """Without `log_level` and `access_log`: those would change the logs of a program that uses uvicorn itself."""
        config = uvicorn.Config(
            make_app(self._view, self._settings.runtime, self._closing),
            http=Connection,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        config.load()
        return config


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Faults of connections are no news for the user of a pipeline."""
    log.debug("the admin API: %s: %s", context.get("message"), context.get("exception"))
