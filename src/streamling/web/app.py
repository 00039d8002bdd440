"""The routes of the admin API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamling.errors import StreamlingError
from streamling.spec.mask import mask_text
from streamling.spec.settings.environment_only import RuntimeLimits
from streamling.web.access import AUTHORIZED, Access
from streamling.web.documents import Liveness
from streamling.web.events import LiveData
from streamling.web.openapi import openapi
from streamling.web.view import NotYet, RunView

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]
_NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def make_app(view: RunView, limits: RuntimeLimits, closing: asyncio.Event) -> ASGIApp:
    """The admin API of a run. Streams of rows end when `closing` is set."""
    from streamling.telemetry.prometheus import CONTENT_TYPE

    # Whatever reads files, databases or many series runs in a thread, a few at a time: probes must be answered quickly.
    slow = asyncio.Semaphore(2)

    async def alive(request: Request) -> Response:
        return _json(Liveness())

    async def ready(request: Request) -> Response:
        found = view.readiness(in_detail=request.scope["state"][AUTHORIZED])
        return _json(found, 200 if found.ready else 503)

    async def error(request: Request) -> Response:
        found = view.error()
        return Response(status_code=204, headers=_NO_STORE) if found is None else _json(found)

    async def progress(request: Request) -> Response:
        return _json(view.run_progress())

    async def epochs(request: Request) -> Response:
        return _json(view.epochs())

    async def metrics(request: Request) -> Response:
        text = await run_in_threadpool(view.metrics)
        return PlainTextResponse(text, headers={**_NO_STORE, "content-type": CONTENT_TYPE})

    async def describe(request: Request) -> Response:
        return JSONResponse(openapi(), headers=_NO_STORE)

    def slowly(make: Callable[[], Any]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            async with slow:
                return _json(await run_in_threadpool(make))

        return endpoint

    routes = [
        Route("/healthz", alive),
        Route("/health", alive),
        Route("/readyz", ready),
        Route("/metrics", metrics),
        Route("/openapi.json", describe),
        Route("/admin/error", error),
        Route("/admin/pipeline", slowly(view.pipeline)),
        Route("/admin/progress", progress),
        Route("/admin/epochs", epochs),
        Route("/admin/state", slowly(view.state)),
        Route("/admin/dlq", slowly(view.dead_letters)),
        Route("/admin/live-data", LiveData(view, closing), methods=["GET"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused, NotYet: _not_yet, Exception: _failed}
    return Access(Starlette(routes=routes, exception_handlers=handlers), limits)


def _json(document: Any, status: int = 200) -> Response:
    """`document`: an instance of one of the classes in documents.py."""
    text = _adapter(type(document)).dump_json(document)
    return Response(text, status, {**_NO_STORE, "content-type": "application/json"})


def _adapter(model: type) -> TypeAdapter[Any]:
    """Made when it is first used: that takes milliseconds, and most runs need few of them."""
    if model.__name__ not in _ADAPTERS:
        _ADAPTERS[model.__name__] = TypeAdapter(model)
    return _ADAPTERS[model.__name__]


_ADAPTERS: dict[str, TypeAdapter[Any]] = {}


async def _refused(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, {**_NO_STORE, **(error.headers or {})})


async def _not_yet(request: Request, error: NotYet) -> Response:
    return JSONResponse({"error": str(error)}, 503, _NO_STORE)


async def _failed(request: Request, error: Exception) -> Response:
    """A database or a file that cannot be read now, or a bug: the pipeline is not affected."""
    level = logging.DEBUG if isinstance(error, StreamlingError) else logging.WARNING
    log.log(level, "the admin API could not answer %s: %s", request.url.path, error)
    return JSONResponse({"error": mask_text(str(error) or type(error).__name__)}, 503, _NO_STORE)
