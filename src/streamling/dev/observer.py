"""Receives the progress of downloads and starts."""

from __future__ import annotations


class Observer:
    """Ignores what it receives. Displays derive from it."""

    def message(self, text: str) -> None:
        """Called for an event that the user should see."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Called several times a second during a download, in bytes; at its end with `done == total`."""
