"""The routes of the admin API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamling.errors import StreamlingError
from streamling.spec.mask import mask_text
from streamling.spec.settings.environment_only import RuntimeLimits
from streamling.web.access import AUTHORIZED, Access
from streamling.web.answers import HEADERS, SlowAnswer, document, nothing, problem, text
from streamling.web.documents import Liveness
from streamling.web.events import LiveData
from streamling.web.openapi import openapi
from streamling.web.view import NotYet, RunView

log = logging.getLogger(__name__)


def make_app(view: RunView, limits: RuntimeLimits, closing: asyncio.Event) -> ASGIApp:
    """The admin API of a run. Streams of rows end when `closing` is set."""
    from streamling.telemetry.prometheus import CONTENT_TYPE

    async def alive(request: Request) -> Response:
        return document(Liveness())

    async def ready(request: Request) -> Response:
        found = view.readiness(in_detail=request.scope["state"][AUTHORIZED])
        return document(found, 200 if found.ready else 503)

    async def error(request: Request) -> Response:
        found = view.error()
        return nothing() if found is None else document(found)

    async def progress(request: Request) -> Response:
        return document(view.run_progress())

    async def epochs(request: Request) -> Response:
        return document(view.epochs())

    async def describe(request: Request) -> Response:
        return JSONResponse(openapi(), headers=HEADERS)

    def slow(path: str, make: Callable[[], Response]) -> Route:
        answer = SlowAnswer(make)

        async def endpoint(request: Request) -> Response:
            return await answer.get()

        return Route(path, endpoint)

    routes = [
        Route("/healthz", alive),
        Route("/health", alive),
        Route("/readyz", ready),
        Route("/openapi.json", describe),
        Route("/admin/error", error),
        Route("/admin/progress", progress),
        Route("/admin/epochs", epochs),
        slow("/metrics", lambda: text(view.metrics(), CONTENT_TYPE)),
        slow("/admin/pipeline", lambda: document(view.pipeline())),
        slow("/admin/state", lambda: document(view.state())),
        slow("/admin/dlq", lambda: document(view.dead_letters())),
        Route("/admin/live-data", LiveData(view, closing), methods=["GET"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused, NotYet: _not_yet, StreamlingError: _failed}
    handlers[Exception] = _failed
    return Access(Starlette(routes=routes, exception_handlers=handlers), limits)


async def _refused(request: Request, error: HTTPException) -> Response:
    return problem(error.status_code, error.detail, error.headers)


async def _not_yet(request: Request, error: NotYet) -> Response:
    return problem(503, str(error))


async def _failed(request: Request, error: Exception) -> Response:
    """A database or a file that cannot be read now, or a bug: the pipeline is not affected."""
    level = logging.DEBUG if isinstance(error, StreamlingError) else logging.WARNING
    log.log(level, "the admin API could not answer %s: %s", request.url.path, error)
    return problem(503, mask_text(str(error) or type(error).__name__))
