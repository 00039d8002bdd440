"""One connection of the admin API, and what its client cannot do: keep it without a request, or without reading."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import sys
import termios
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

# A client has this long to send a request, and to read on; then its connection is of no use to anyone.
PATIENCE_S = 10.0
# More connections than dashboards and probes need, and fewer than the open files that a process may have.
MOST_CONNECTIONS = 512
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 32\r\n"
    b'connection: close\r\n\r\n{"error":"too many connections"}'
)
# A wrong request is the fault of a client, and not worth a line in the log of the pipeline.
_SILENT = logging.Logger(f"{__name__}.silent", logging.CRITICAL + 1)


class Connection(H11Protocol):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        # Those of uvicorn belong to the program that this process may be.
        self.logger = _SILENT
        self.access_log = False
        self._idle_since = self.loop.time()
        """Since when it waits for a request, unless it is answering one."""
        self._unread = 0
        """What the client had not read yet when it was last looked at."""
        self._read_at = self._idle_since
        """When it was last seen to read on, or to have read everything."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Nothing is added to what waits for the client, so if their number stays the same, it does not read.
        transport.set_write_buffer_limits(0)
        # A stream of rows can only be ended this way if its client does not read.
        self.app_state = {**self.app_state, "transport": transport}
        if len(self.connections) > MOST_CONNECTIONS and not self._make_room():
            transport.write(_FULL)
            transport.close()
        else:
            self._timer = self.loop.call_later(PATIENCE_S / 2, self._look)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # a wrong body after the answer, for example
            log.debug("a request is not valid: %s", error)
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. It may wait for an answer, but not for the end of a stream."""
        answering = not self._is_idle and not self.cycle.response_started
        if answering:
            self.cycle.keep_alive = False
        return answering

    def resume_writing(self) -> None:
        self._unread = 0
        super().resume_writing()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> bool:
        """End the connection that has been idle the longest: clients without requests must not keep out probes."""
        idle = [one for one in self.connections if isinstance(one, Connection) and one is not self and one._is_idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda one: one._idle_since)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def _count_unread(self) -> int:
        """The bytes that wait for the client, here and in the kernel, which takes them in pieces of a megabyte."""
        own = self.transport.get_write_buffer_size()
        connection = self.transport.get_extra_info("socket")
        if not own or connection is None:
            return own
        try:
            return own + int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:  # it has just been closed
            return own

    def _look(self) -> None:
        now, unread = self.loop.time(), self._count_unread()
        if unread < self._unread or not self._unread:
            self._read_at = now
        self._unread = unread
        since = self._read_at if unread else self._idle_since
        if (unread or self._is_idle) and now - since >= PATIENCE_S:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(PATIENCE_S / 2, self._look)
