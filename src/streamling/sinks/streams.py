"""Streams: parts of a write that a sink with `parallelism` runs at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Protocol

from streamling.errors import PermanentError


class Cancelled(PermanentError):
    """Another stream of the same write has failed."""


class Runnable(Protocol):
    def run(self) -> None: ...


def run_streams(streams: Sequence[Runnable], name: str) -> None:
    """Run all of them, each in a thread if there are several, and wait. Raises the error of the one that failed first,
    not of those that were cancelled because of it."""
    if len(streams) == 1:
        streams[0].run()
        return
    with ThreadPoolExecutor(len(streams), thread_name_prefix=name) as pool:
        futures = [pool.submit(copy_context().run, stream.run) for stream in streams]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, Cancelled)), errors[0])
