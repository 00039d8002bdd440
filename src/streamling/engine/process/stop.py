"""The request to stop, from the main thread, which receives signals, to the threads that work."""

from __future__ import annotations

import threading
import time

_CHECK_S = 0.5


class StopRequest:
    """Asks the loop to end; other threads make it. `wakeup` also wakes the loop when a source has rows."""

    def __init__(self) -> None:
        self.wakeup = threading.Event()
        self.drains = True
        self._requested = threading.Event()
        self.failed = threading.Event()
        """Set while the current epoch cannot succeed because a sink has failed: nothing waits for the other sinks."""

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep until the time is over or a stop is requested."""
        self._requested.wait(seconds)

    @property
    def ends_retries(self) -> bool:
        """Whether an action that fails transiently is not retried any more."""
        return self.requested or self.failed.is_set()

    def pause_retries(self, seconds: float) -> None:
        """Sleep until the time is over or retries end."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.ends_retries:
            self.pause(min(left, _CHECK_S))

    def wake(self) -> None:
        self.wakeup.set()

    def request(self, *, drains: bool) -> None:
        self.drains = drains
        self._requested.set()
        self.wakeup.set()
