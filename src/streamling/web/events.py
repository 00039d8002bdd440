"""`GET /admin/live-data`: rows as server-sent events, first those stored, then live ones."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from streamling.telemetry.inspection import Sample, Samples, Subscription
from streamling.web.answers import HEADERS, problem
from streamling.web.view import RunView

# Proxies close connections on which nothing is sent for a minute or less.
_KEEP_ALIVE_S = 15.0
# Each client has a buffer; a dashboard needs one.
_MOST_CLIENTS = 256
# What is sent at once is in memory until the client has read it.
_PIECE = 64 << 10
_TYPE = {"content-type": "text/event-stream; charset=utf-8"}


class LiveData:
    """An ASGI application. Ends all its streams when `closing` is set."""

    def __init__(self, view: RunView, closing: asyncio.Event) -> None:
        self._view = view
        self._closing = closing
        self._clients = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        samples = self._view.samples
        if samples is None:
            await problem(404, "rows are not sampled: set live_data_inspect_enabled")(scope, receive, send)
        elif self._clients >= _MOST_CLIENTS:
            await problem(503, "too many clients")(scope, receive, send)
        elif scope["method"] == "HEAD":
            await send(_start())
            await send({"type": "http.response.body", "body": b""})
        else:
            self._clients += 1
            try:
                await self._stream(scope, receive, send, samples)
            finally:
                self._clients -= 1

    async def _stream(self, scope: Scope, receive: Receive, send: Send, samples: Samples) -> None:
        client = _Client(asyncio.get_running_loop(), scope.get("state", {}).get("transport"))
        stored, subscription = samples.subscribe(_nodes(scope), client.notify)
        client.subscription = subscription
        watches = [
            asyncio.create_task(client.wait_for_disconnect(receive)),
            asyncio.create_task(client.wait_for_closing(self._closing)),
        ]
        try:
            await send(_start())
            await send(_body(b": connected\n\n"))
            for piece in _pieces(stored):
                await send(piece)
            del stored
            while (taken := subscription.take()) or not client.over:
                for piece in _pieces(taken):
                    await send(piece)
                if not taken and not await client.woken_within(_KEEP_ALIVE_S):
                    await send(_body(b": keep-alive\n\n"))
            with suppress(Exception):  # the client may be gone
                await send({"type": "http.response.body", "body": b""})
        finally:
            subscription.close()
            for watch in watches:
                watch.cancel()


class _Client:
    """One stream: wakes it up for new rows, for the end of the run, and when the client has gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport | None) -> None:
        self._loop = loop
        self._transport = transport
        self._wakeup = asyncio.Event()
        self.subscription: Subscription | None = None
        self.over = False

    def notify(self) -> None:
        """Called by the engine's thread when there are rows."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self.subscription is not None and self.subscription.fallen_behind:
            self.over = True
            # A client that does not read blocks whatever is sent to it, also the end of the stream.
            if self._transport is not None:
                self._transport.abort()
        self._wakeup.set()

    async def woken_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._wakeup.wait(), seconds)
        except TimeoutError:
            return False
        self._wakeup.clear()
        return True

    async def wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._end()

    async def wait_for_closing(self, closing: asyncio.Event) -> None:
        await closing.wait()
        self._end()

    def _end(self) -> None:
        self.over = True
        self._wakeup.set()


def _nodes(scope: Scope) -> Container[str] | None:
    """The nodes that a client asks for; None: all."""
    text = ",".join(Request(scope).query_params.getlist("topology_node_keys"))
    names = frozenset(name for part in text.split(",") if (name := part.strip()))
    return _Names(text, names) if names else None


@dataclass(frozen=True, slots=True)
class _Names:
    """Names in a list, separated by commas. The name of a node may have commas as well."""

    text: str
    names: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name in self.names or (isinstance(name, str) and "," in name and f",{name}," in f",{self.text.strip()},")


def _start() -> Message:
    headers = [(name.encode(), value.encode()) for name, value in {**HEADERS, **_TYPE}.items()]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _pieces(samples: Iterable[Sample]) -> Iterator[Message]:
    piece = bytearray()
    for sample in samples:
        piece += f"data: {sample.event()}\n\n".encode(errors="replace")
        if len(piece) >= _PIECE:
            yield _body(bytes(piece))
            piece.clear()
    if piece:
        yield _body(bytes(piece))


def _body(text: bytes) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": True}
