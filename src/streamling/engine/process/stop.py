"""The request to stop, from the main thread, which receives signals, to the threads that work."""

from __future__ import annotations

import threading


class StopRequest:
    """Asks the loop to end; other threads make it. `wakeup` also wakes the loop when a source has rows."""

    def __init__(self) -> None:
        self.wakeup = threading.Event()
        self.drains = True
        self._requested = threading.Event()

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep until the time is over or a stop is requested."""
        self._requested.wait(seconds)

    def wake(self) -> None:
        self.wakeup.set()

    def request(self, *, drains: bool) -> None:
        self.drains = drains
        self._requested.set()
        self.wakeup.set()
