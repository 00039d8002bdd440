"""Staged files: one directory per process that writes to a sink, so that those of a dead process can be told apart.

A process holds a lock on a file in its directory for as long as it lives, also while it is suspended. The system
releases the lock when the process ends. So the next owner knows which directories it may remove, without a clock. Where
the file system has no locks, a directory has no lock file, and it is never removed.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_LOCK = ".lock"


class Staging:
    """The directory of this process below `root`, which all owners of the sink share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.directory, self._lock = _make_directory(root)

    def of_epoch(self, epoch: str) -> Path:
        return self.directory / epoch

    def restore(self) -> None:
        """Make the directory again if it was removed; the root must exist."""
        self.directory.mkdir(exist_ok=True)

    def remove(self, epoch: str) -> None:
        """Remove what this process has staged for an epoch."""
        shutil.rmtree(self.of_epoch(epoch), ignore_errors=True)

    def remove_everywhere(self, epoch: str) -> None:
        """Remove what any process has staged for an epoch."""
        for directory in (self.root, *_directories(self.root)):
            shutil.rmtree(directory / epoch, ignore_errors=True)

    @contextmanager
    def dead_owners(self) -> Iterator[None]:
        """Lock the directories of processes that have ended, and remove them at the end of the block.

        The block moves the files that those processes have committed. They can commit no others.
        """
        locks = [(directory, lock) for directory in _directories(self.root) if (lock := _lock_dead(directory))]
        try:
            yield
            for directory, _ in locks:
                shutil.rmtree(directory, ignore_errors=True)
        finally:
            for _, lock in locks:
                lock.close()

    def close(self) -> None:
        """Release the lock. What is still staged is removed by the next owner."""
        if self._lock is not None and [path.name for path in _paths(self.directory)] == [_LOCK]:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _make_directory(root: Path) -> tuple[Path, IO[bytes] | None]:
    while True:
        directory = root / secrets.token_hex(8)
        directory.mkdir()
        file = (directory / _LOCK).open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process takes this one for dead: it came before the lock
            file.close()
            continue
        except OSError:  # the file system has no locks
            file.close()
            (directory / _LOCK).unlink()
            return directory, None
        if (directory / _LOCK).exists():
            return directory, file
        file.close()


def _lock_dead(directory: Path) -> IO[bytes] | None:
    """The lock of a process that has ended; None for one that lives, or may live."""
    try:
        file = (directory / _LOCK).open("rb+")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _directories(root: Path) -> list[Path]:
    return [path for path in _paths(root) if path.is_dir()]


def _paths(directory: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return list(directory.iterdir())
    return []
