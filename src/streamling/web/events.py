"""`GET /admin/live-data`: rows as server-sent events, first those stored, then live ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from streamling.telemetry.inspection import Sample, Samples, Subscription
from streamling.web.view import RunView

# Proxies close connections on which nothing is sent for a minute or less.
_KEEP_ALIVE_S = 15.0
# Each client has a buffer; a dashboard needs one.
_MOST_CLIENTS = 256
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class LiveData:
    """An ASGI application. Ends all its streams when `closing` is set."""

    def __init__(self, view: RunView, closing: asyncio.Event) -> None:
        self._view = view
        self._closing = closing
        self._clients = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        samples = self._view.samples
        if samples is None:
            message = "rows are not sampled: set live_data_inspect_enabled"
            await JSONResponse({"error": message}, 404)(scope, receive, send)
        elif self._clients >= _MOST_CLIENTS:
            await JSONResponse({"error": "too many clients"}, 503)(scope, receive, send)
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
            await send(_body(stored) if stored else _body_of(b": connected\n\n"))
            while (taken := subscription.take()) or not client.over:
                if taken:
                    await send(_body(taken))
                elif not await client.woken_within(_KEEP_ALIVE_S):
                    await send(_body_of(b": keep-alive\n\n"))
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


def _nodes(scope: Scope) -> frozenset[str] | None:
    """The nodes that a client asks for; None: all."""
    text = Request(scope).query_params.get("topology_node_keys", "")
    return frozenset(name for part in text.split(",") if (name := part.strip())) or None


def _start() -> Message:
    return {"type": "http.response.start", "status": 200, "headers": _HEADERS}


def _body(samples: Iterable[Sample]) -> Message:
    return _body_of("".join(f"data: {sample.event()}\n\n" for sample in samples).encode())


def _body_of(text: bytes) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": True}
