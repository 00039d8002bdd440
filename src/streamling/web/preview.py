"""The preview server: runs pipelines that clients send, without their sinks, and sends back their rows.

    POST /rewrite    the pipeline with blackholes instead of sinks
    POST /preview    rows of all its nodes as server-sent events, for a while

A pipeline is trusted input: it may read any file and call any address that this process can. So the server listens on
loopback unless told otherwise, with the host and the token of the admin API.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from streamling.connector import kinds
from streamling.errors import StreamlingError
from streamling.plan.blackholes import replace_sinks
from streamling.spec.pipeline import PipelineText
from streamling.spec.settings import Settings
from streamling.web.access import Access
from streamling.web.preview_child import Ended, Event, PreviewChild, start_child

log = logging.getLogger(__name__)

DEFAULT_SECONDS = 180
MAX_SECONDS = 600
# The largest pipelines have some hundred kilobytes.
MAX_BODY = 1 << 20
# A client that sends more slowly is not there any more.
_BODY_S = 30.0
# How much longer than asked for a preview may take: Java and Spark start, and compile what computes the first rows.
_STARTING_S = 60.0
# Each loads the plugins anew, for the whole process. It takes a second of a core at most, and longer if it waits for a
# system that does not answer.
_CHECKS_AT_ONCE = 1
# Proxies close connections on which nothing is sent for a minute or less.
_KEEP_ALIVE_S = 15.0
# What errors call the pipeline of a request: not a file that could be there, because errors quote the lines of files.
_NAME = "<request>"
_NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Refused(Exception):
    """A request that is not carried out: status and text of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Tools:
    """What the command line gives to the server.

    check     checks a pipeline as `validate --probe` does; raises what it finds
    render    the text that the command line shows for an error
    command   what starts a preview, without file and options
    """

    check: Callable[[PipelineText], object]
    render: Callable[[Exception], str]
    command: Sequence[str]


class PreviewServer:
    """At most one preview runs at a time: a new one ends the last."""

    def __init__(self, settings: Settings, tools: Tools) -> None:
        self._settings = settings
        self._tools = tools
        self._current: PreviewChild | None = None
        self._starting = asyncio.Lock()
        self._newest = 0
        self._checking = asyncio.Semaphore(_CHECKS_AT_ONCE)

    def app(self) -> ASGIApp:
        routes = [
            Route("/rewrite", self._rewrite, methods=["POST"]),
            Route("/preview", self._preview, methods=["POST"]),
            Route("/health", self._health),
        ]
        handlers = {Refused: _refused, Exception: _failed}
        return Access(Starlette(routes=routes, exception_handlers=handlers), self._settings.runtime)  # type: ignore[arg-type]

    def terminate(self) -> None:
        """Ask the preview that runs to end."""
        if self._current is not None:
            self._current.terminate()

    async def close(self) -> None:
        if self._current is not None:
            await self._current.end()

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"alive": True}, headers=_NO_STORE)

    async def _rewrite(self, request: Request) -> Response:
        text = await self._rewritten(await _body(request))
        return Response(text, media_type="application/yaml", headers=_NO_STORE)

    async def _preview(self, request: Request) -> Response:
        seconds = _seconds(request)
        text = await self._rewritten(await _body(request))
        try:
            async with self._checking:
                await run_in_threadpool(self._tools.check, PipelineText(text, _NAME))
        except StreamlingError as error:
            raise Refused(422, self._tools.render(error)) from error
        child = await self._start(text, seconds)
        try:
            await child.ready()
        except (TimeoutError, Ended) as error:
            if child.terminated:
                raise _replaced() from error
            await child.end()
            raise Refused(502, f"the preview did not start: {error}") from error
        return StreamingResponse(_events(child, seconds), media_type="text/event-stream", headers=_NO_STORE)

    async def _rewritten(self, text: str) -> str:
        try:
            async with self._checking:
                return await run_in_threadpool(replace_sinks, text, _NAME, kinds.kinds())
        except StreamlingError as error:
            raise Refused(422, self._tools.render(error)) from error

    async def _start(self, text: str, seconds: int) -> PreviewChild:
        self._newest += 1
        number = self._newest
        async with self._starting:
            if number != self._newest:
                raise _replaced()
            await self.close()
            try:
                self._current = await start_child([*self._tools.command], text, seconds)
            except OSError as error:
                raise Refused(500, f"the preview could not be started: {error}") from error
            return self._current


def _replaced() -> Refused:
    return Refused(409, "this preview was ended before it began: there is a newer one, or the server ends")


async def _events(child: PreviewChild, seconds: int) -> AsyncIterator[str]:
    """The events of a preview, then its end. If the client goes, the preview ends."""
    # The process measures its time itself, from the moment when it can read.
    deadline = asyncio.get_running_loop().time() + seconds + _STARTING_S
    try:
        yield ": connected\n\n"
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            try:
                event = await asyncio.wait_for(asyncio.shield(child.next_event()), min(left, _KEEP_ALIVE_S))
            except TimeoutError:
                yield ": keep-alive\n\n"
                continue
            if event is None:
                break
            yield str(event)
        await child.end()
        if child.failure is not None:
            yield str(Event(json.dumps({"message": child.failure}), "failure"))
        yield str(Event(json.dumps({"reason": "preview ended"}), "end"))
    finally:
        child.terminate()


async def _body(request: Request) -> str:
    """The pipeline. Raises Refused."""
    too_long = Refused(413, f"the pipeline has more than {MAX_BODY:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY:
        raise too_long
    data = bytearray()

    async def read() -> None:
        async for chunk in request.stream():
            data.extend(chunk)
            if len(data) > MAX_BODY:
                raise too_long

    try:
        await asyncio.wait_for(read(), _BODY_S)
        return data.decode("utf-8-sig")
    except TimeoutError:
        raise Refused(408, "the request did not arrive in time") from None
    except UnicodeDecodeError as error:
        raise Refused(422, "the pipeline is not UTF-8 text") from error


def _seconds(request: Request) -> int:
    """Absent or 0: the default; larger values are reduced to the maximum."""
    text = request.query_params.get("duration_seconds", "")
    if not text:
        return DEFAULT_SECONDS
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refused(422, f"duration_seconds must be a whole number of seconds, not '{text[:40]}'")
    return min(int(text), MAX_SECONDS) or DEFAULT_SECONDS


async def _refused(request: Request, error: Refused) -> Response:
    return PlainTextResponse(str(error), error.status, _NO_STORE)


async def _failed(request: Request, error: Exception) -> Response:
    """A defect. The web server would not log it."""
    log.error("%s %s failed: %r", request.method, request.url.path, error)
    log.debug("%s", "".join(traceback.format_exception(error)))
    return PlainTextResponse(f"internal error: {type(error).__name__}", 500, _NO_STORE)
