"""An endpoint that answers every request with its own body, after some milliseconds: `http_endpoint.py MILLISECONDS`.

Prints its port, and runs until its input ends.
"""

from __future__ import annotations

import asyncio
import sys

_END = b"\r\n\r\n"


class Connection(asyncio.Protocol):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(_END)
        if head_end < 0:
            return
        size = _content_length(self._received[:head_end])
        end = head_end + len(_END) + size
        if len(self._received) < end:
            return
        body, self._received = self._received[head_end + len(_END) : end], self._received[end:]
        if self._seconds:
            asyncio.get_running_loop().call_later(self._seconds, self._answer, body)
        else:
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)  # type: ignore[attr-defined]


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(float(sys.argv[1]) / 1000), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
