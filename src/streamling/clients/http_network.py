"""The connections of a channel: known to it, so that it can cut them, and with one packet for head and body of a small
request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import httpcore

# A larger body is sent after its head.
_JOINED_BYTES = 64 << 10


class Network(httpcore.NetworkBackend):
    """`note` gets the socket of every connection, and again when it becomes one with TLS."""

    def __init__(self, note: Callable[[Any], object]) -> None:
        self._note = note
        self._plain = httpcore.SyncBackend()

    def connect_tcp(self, host: str, port: int, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self._plain.connect_tcp(host, port, *arguments, **options), self._note)

    def sleep(self, seconds: float) -> None:
        self._plain.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    """Sends what is written when an answer is read: a server that gets the head by itself wakes up twice."""

    def __init__(self, stream: httpcore.NetworkStream, note: Callable[[Any], object]) -> None:
        self._stream = stream
        self._note = note
        self._written = bytearray()
        note(stream.get_extra_info("socket"))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if len(self._written) + len(buffer) <= _JOINED_BYTES:
            self._written += buffer
            return
        self._send(timeout)
        # The stream slices off what is sent, again and again: of a view that copies nothing.
        self._stream.write(cast(bytes, memoryview(buffer)), timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._written:
            # A server may answer before it has read everything, and close: its answer counts.
            with suppress(httpcore.WriteError):
                self._send(timeout)
        return self._stream.read(max_bytes, timeout)

    def _send(self, timeout: float | None) -> None:
        if self._written:
            written, self._written = bytes(self._written), bytearray()
            self._stream.write(written, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._note)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
