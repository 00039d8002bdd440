"""A deadline for the requests of a connection: one thread per connection, started with the first request."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Deadline:
    """Calls `cut` when an answer takes too long. It shuts the connection down (`shut_down`), which wakes up the thread
    that waits for the answer. With None there is nothing to cut.
    """

    def __init__(self, cut: Callable[[], object] | None) -> None:
        self._cut = cut
        self._changed = threading.Condition()
        self._due: float | None = None
        self._wakes_at = math.inf
        self._closed = False
        self._thread: threading.Thread | None = None
        self.expired = False

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """The answer must arrive within so many seconds; 0 = no limit."""
        self.expired = False
        if seconds:
            self._set(time.monotonic() + seconds)
        try:
            yield
        finally:
            if seconds:
                self._set(None)

    def close(self) -> None:
        """End the thread. The socket is left alone."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _set(self, due: float | None) -> None:
        with self._changed:
            self._due = due
            # Most answers come long before they are due: the thread is not woken for them, and looks again when it
            # wakes up by itself.
            if due is None or due >= self._wakes_at:
                return
            if self._thread is None and self._cut is not None:
                self._thread = threading.Thread(target=self._watch, name="deadline", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                left = None if self._due is None else self._due - time.monotonic()
                if left is not None and left <= 0:
                    self.expired = True
                    if self._cut is not None:
                        self._cut()
                    self._due = None
                    continue
                self._wakes_at = self._due if self._due is not None else math.inf
                self._changed.wait(left)


def shut_down(socket_number: int) -> None:
    """End the connection of a socket in both directions. A socket that is closed already is left alone."""
    with suppress(OSError), socket.socket(fileno=os.dup(socket_number)) as link:
        link.shutdown(socket.SHUT_RDWR)
