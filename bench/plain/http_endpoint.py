"""An endpoint that answers every request with its own body, after some milliseconds: `http_endpoint.py MILLISECONDS`.

Prints its port, and runs until its input ends. A thread per connection: the timers of an event loop are up to a
millisecond late.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

_END = b"\r\n\r\n"


def serve(connection: socket.socket, seconds: float) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = bytearray()
    while data := connection.recv(1 << 20):
        arrived = time.perf_counter()
        received += data
        head_end = received.find(_END)
        if head_end < 0:
            continue
        end = head_end + len(_END) + _content_length(bytes(received[:head_end]))
        if len(received) < end:
            continue
        body = bytes(received[head_end + len(_END) : end])
        del received[:end]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        time.sleep(max(0.0, arrived + seconds - time.perf_counter()))
        connection.sendall(head + body)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def accept_all(server: socket.socket, seconds: float) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection, seconds), daemon=True).start()


server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept_all, args=(server, float(sys.argv[1]) / 1000), daemon=True).start()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
