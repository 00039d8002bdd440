"""Who is told how far a fetch or a start has come."""

from __future__ import annotations


class Onlooker:
    """Looks away. A screen derives from it."""

    def said(self, text: str) -> None:
        """Something happened that a person wants to know."""

    def fetching(self, what: str, done: int, total: int) -> None:
        """So many bytes of a package are here. Called several times a second, at the end with `done == total`."""
