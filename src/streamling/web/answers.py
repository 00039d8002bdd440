"""The answers of the admin API: documents as JSON, and refusals. No browser may store them or guess their type."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError
from starlette.responses import Response

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
# A client that waits longer has given up.
_PATIENCE_S = 30.0
_adapters: dict[type, TypeAdapter[Any]] = {}


def text(content: str, type_: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Names of files may have bytes that are not text; they become `?`."""
    return Response(content.encode("utf-8", "replace"), status, {**HEADERS, **(headers or {}), "content-type": type_})


def nothing() -> Response:
    return Response(status_code=204, headers=HEADERS)


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal. The message must not have secrets."""
    return text(json.dumps({"error": message}, ensure_ascii=False), "application/json", status, headers)


def document(content: Any, status: int = 200) -> Response:
    """`content`: an instance of one of the classes in documents.py."""
    adapter = _adapter(type(content))
    try:
        return Response(adapter.dump_json(content), status, {**HEADERS, "content-type": "application/json"})
    except PydanticSerializationError:  # see `text`
        plain = json.dumps(adapter.dump_python(content, mode="json"), ensure_ascii=False)
        return text(plain, "application/json", status)


def _adapter(model: type) -> TypeAdapter[Any]:
    """Made when it is first used: that takes milliseconds, and most runs need few of them."""
    if model not in _adapters:
        _adapters[model] = TypeAdapter(model)
    return _adapters[model]


class SlowAnswer:
    """An answer that needs files, databases or many series. A thread of its own makes it: probes must not wait for it.

    One at a time: requests that arrive meanwhile get the same answer. So clients cannot start more and more of them if
    a database does not answer.
    """

    def __init__(self, make: Callable[[], Response]) -> None:
        self._make = make
        self._current: asyncio.Future[Response] | None = None

    async def get(self) -> Response:
        if self._current is None or self._current.done():
            self._current = _in_thread(self._make)
        try:
            return await asyncio.wait_for(asyncio.shield(self._current), _PATIENCE_S)
        except TimeoutError:
            return problem(503, f"there was no answer within {_PATIENCE_S:g} s; it is still being waited for")


def _in_thread(make: Callable[[], Response]) -> asyncio.Future[Response]:
    """Runs in a daemon thread: the process can end although a database does not answer."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Response] = loop.create_future()
    result.add_done_callback(lambda done: done.exception())  # all clients may have gone

    def run() -> None:
        with suppress(RuntimeError):  # the server has ended
            try:
                response = make()
            except Exception as error:
                loop.call_soon_threadsafe(result.set_exception, error)
            else:
                loop.call_soon_threadsafe(result.set_result, response)

    threading.Thread(target=run, name="admin answer", daemon=True).start()
    return result
