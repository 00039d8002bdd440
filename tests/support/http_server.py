"""An HTTP server on this machine that remembers its requests and answers as a test tells it: well, badly, or not."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    """Names in lower case; of a header that came twice, both values."""
    body: bytes
    at: float
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def rows(self) -> list[Any]:
        return self.json if isinstance(self.json, list) else [self.json]

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


@dataclass(frozen=True)
class Answer:
    """`fault`: `reset` the connection before the answer, `cut` it in the middle of the body, `hang` without a word,
    `drip` one byte every now and then."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    fault: str = ""


Respond = Callable[[Request], Answer]


class RecordingServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, respond: Respond, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.requests: list[Request] = []
        self.tunnels: list[str] = []
        """The addresses to which clients asked for a tunnel, as they ask a proxy."""
        self.in_flight = 0
        self.most_in_flight = 0
        self.lock = threading.Lock()
        self.connections = 0
        self.ending = threading.Event()
        self._scheme = "http" if context is None else "https"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self.server_port}"

    @property
    def rows(self) -> list[Any]:
        """Of all requests, in order."""
        return [row for request in list(self.requests) for row in request.rows]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: RecordingServer

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1
            self._number = self.server.connections

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:  # the client is gone
            self.close_connection = True
            return
        headers: dict[str, str] = {}
        for name, value in self.headers.items():
            known = headers.get(name.lower())
            headers[name.lower()] = value if known is None else f"{known}, {value}"
        request = Request(self.path, headers, body, time.monotonic(), self._number)
        server = self.server
        with server.lock:
            server.requests.append(request)
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
        try:
            answer = server.respond(request)
            time.sleep(answer.delay)
        finally:
            with server.lock:
                server.in_flight -= 1
        self._answer(answer)

    def do_CONNECT(self) -> None:
        host, port = self.path.rsplit(":", 1)
        self.server.tunnels.append(self.path)
        with socket.create_connection((host, int(port))) as target:
            self.send_response(200)
            self.end_headers()
            threading.Thread(target=_pump, args=(target, self.connection), daemon=True).start()
            _pump(self.connection, target)
        self.close_connection = True

    def do_GET(self) -> None:
        self.send_error(405)

    def _answer(self, answer: Answer) -> None:
        if answer.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        if answer.fault == "hang":
            self.server.ending.wait(30)
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if answer.fault == "cut":
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self.close_connection = True
        elif answer.fault == "drip":
            with suppress(OSError):
                for number in range(len(answer.body)):
                    self.wfile.write(answer.body[number : number + 1])
                    time.sleep(0.2)
        else:
            self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        pass


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def recording_server(
    respond: Respond = lambda request: Answer(), context: ssl.SSLContext | None = None
) -> Iterator[RecordingServer]:
    server = RecordingServer(respond, context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()  # what hangs until then
        server.shutdown()
        server.server_close()
        thread.join()


def in_turn(*answers: Answer) -> Respond:
    """One answer after the other; the last one from then on."""
    remaining = list(answers)
    lock = threading.Lock()

    def respond(request: Request) -> Answer:
        with lock:
            return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return respond
