"""A server on this machine that answers every request with whatever it was told: too slow, too much, or broken."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Send = Callable[[bytes], None]


@dataclass
class HostileServer:
    port: int
    answer: Callable[[Send], None] = field(default=lambda send: None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def hostile_server() -> Iterator[HostileServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HostileServer(listener.getsockname()[1])
        threading.Thread(target=_serve, args=(listener, server), daemon=True).start()
        yield server
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, server: HostileServer) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, server), daemon=True).start()


def _answer(connection: socket.socket, server: HostileServer) -> None:
    with connection, suppress(OSError):
        connection.settimeout(5)
        connection.recv(65536)
        server.answer(connection.sendall)


def endless(head: bytes, piece: bytes, pause: float = 0.0) -> Callable[[Send], None]:
    """Sends pieces until the client closes the connection."""

    def answer(send: Send) -> None:
        send(head)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            send(piece)
            time.sleep(pause)

    return answer
