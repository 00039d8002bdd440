"""One instance of a plugin in a run: its methods are called one at a time, on a thread of its own.

Coroutines run on one event loop that all plugins of the process share.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any

from streamling.plugin.bases import PluginError
from streamling.plugin.failures import failure

# Closing is the last call to a plugin; one that does not return must not keep the process alive.
LAST_CALL_S = 10.0


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="plugins", daemon=True).start()
    return loop


def _start_on_loop(awaitable: Awaitable[Any]) -> Future[Any]:
    async def wait() -> Any:
        return await awaitable

    return asyncio.run_coroutine_threadsafe(wait(), _event_loop())


def resolve(result: Any) -> Any:
    """The result of a method; awaited if it is a coroutine."""
    return _start_on_loop(result).result() if inspect.isawaitable(result) else result


class Instance:
    """Calls methods by name; a method that the plugin does not have does nothing."""

    def __init__(self, plugin: object, *, node: str, described: str) -> None:
        self.plugin = plugin
        self._node = node
        self._described = described
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending_batch: Future[Any] | None = None

    def has(self, method: str) -> bool:
        return callable(getattr(self.plugin, method, None))

    def call(self, method: str, *arguments: object) -> Any:
        """The result of the method, once the calls before it are done. Raises StreamlingError."""
        return self.submit(method, *arguments).result()

    def submit(self, method: str, *arguments: object) -> Future[Any]:
        future: Future[Any] = Future()
        if not self.has(method):
            future.set_result(None)
            return future
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"plugin {self._node}", daemon=True)
            self._thread.start()
        # With the node and the epoch that its lines in the log belong to.
        context = copy_context()
        self._calls.put(lambda: context.run(self._do, future, method, arguments))
        return future

    def end(self, method: str = "terminate") -> Future[Any]:
        """The last call, after all earlier ones. A batch that is still being generated is cancelled."""
        if self._pending_batch is not None:
            self._pending_batch.cancel()
        last = self.submit(method)
        self._calls.put(None)
        return last

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _do(self, future: Future[Any], method: str, arguments: tuple[object, ...]) -> None:
        try:
            result = getattr(self.plugin, method)(*arguments)
            if inspect.isawaitable(result):
                started = _start_on_loop(result)
                self._pending_batch = started if method == "generate_batch" else None
                result = started.result()
            future.set_result(result)
        except BaseException as error:  # whatever it is, it is an error of the plugin and is raised to the caller
            if isinstance(error, PluginError) and error.rows is not None and method == "process_batch":
                future.set_exception(error)
            else:
                future.set_exception(failure(self._node, self._described, method, error))
        finally:
            self._pending_batch = None
