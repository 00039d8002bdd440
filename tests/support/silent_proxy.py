"""A TCP proxy whose links can go dead without a word: what is sent is taken, nothing comes back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SilentProxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._dead: set[int] = set()
        self._links = 0
        self._lock = threading.Lock()
        self.kill_next_with: bytes | None = None
        self.deaf = False
        """Answers do not come back, on any link, and are lost."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def links(self) -> int:
        """How many connections there have been."""
        return self._links

    def silence(self, *, next_with: bytes | None = None) -> None:
        """All links die; so does the next one that sends these bytes, before they arrive."""
        with self._lock:
            self._dead.update(range(self._links))
            self.kill_next_with = next_with

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                upstream = socket.create_connection(self._target)
                with self._lock:
                    number = self._links
                    self._links += 1
                for source, sink, outwards in ((client, upstream, True), (upstream, client, False)):
                    threading.Thread(target=self._pump, args=(number, source, sink, outwards), daemon=True).start()

    def _pump(self, number: int, source: socket.socket, sink: socket.socket, outwards: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    if outwards and self.kill_next_with and self.kill_next_with in data and number not in self._dead:
                        self._dead.add(number)
                        self.kill_next_with = None
                    if number in self._dead or (self.deaf and not outwards):
                        continue
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def silent_proxy(host: str, port: int) -> Iterator[SilentProxy]:
    proxy = SilentProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
