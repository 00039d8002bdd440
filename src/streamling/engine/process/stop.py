"""The request to stop, between the main thread, which hears signals, and those that work."""

from __future__ import annotations

import threading


class StopRequest:
    """Asks the loop to end; set from other threads. `heard` also wakes it when a source has rows."""

    def __init__(self) -> None:
        self.heard = threading.Event()
        self.drains = True
        self._requested = threading.Event()

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep, but not beyond a stop."""
        self._requested.wait(seconds)

    def wake(self) -> None:
        self.heard.set()

    def request(self, *, drains: bool) -> None:
        self.drains = drains
        self._requested.set()
        self.heard.set()
