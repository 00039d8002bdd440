"""A lock between processes that no kind of death leaves behind."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from streamling.dev.onlooker import Onlooker


@contextmanager
def locked(file: Path, onlooker: Onlooker, waiting_for: str) -> Iterator[IO[bytes]]:
    """Hold the lock of a file; a child that is given its descriptor holds it too, for as long as it lives."""
    with file.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            onlooker.said(f"waiting for {waiting_for}")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield held
