"""When the next request to a host may be sent: at most so many per second, and not while the host asks to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class HostGate:
    """Shared by all nodes of a process that post to one host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0
        self._held_until = 0.0

    def pass_through(self, per_second: float | None, sleep: Callable[[float], object]) -> None:
        """Return when a request may be sent; `sleep` may return early, and then so does this."""
        if per_second is None and self._held_until == 0.0:
            return
        wait = self._reserve(per_second)
        if wait > 0:
            sleep(wait)

    def hold(self, seconds: float) -> None:
        """Let no request pass for this time."""
        with self._lock:
            self._held_until = max(self._held_until, time.monotonic() + seconds)

    def _reserve(self, per_second: float | None) -> float:
        """The seconds until the place of this request."""
        with self._lock:
            now = time.monotonic()
            if self._held_until <= now:
                self._held_until = 0.0
            at = max(now, self._held_until)
            if per_second is not None:
                at = max(at, self._next)
                self._next = at + 1.0 / per_second
            return at - now


_gates: dict[str, HostGate] = {}
_lock = threading.Lock()


def gate_of(host: str) -> HostGate:
    """The gate of a host and port in this process."""
    with _lock:
        return _gates.setdefault(host, HostGate())
