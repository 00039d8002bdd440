"""A lock between processes, which the system releases however its holder ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from streamling.dev.observer import Observer


@contextmanager
def file_lock(file: Path, observer: Observer, waiting_for: str) -> Iterator[IO[bytes]]:
    """Hold the lock of a file. A child process that inherits the descriptor holds the lock too, until it ends."""
    with file.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            observer.message(f"waiting for {waiting_for}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
