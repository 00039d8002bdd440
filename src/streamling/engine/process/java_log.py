"""What Java writes to its standard output and error, as far as a failure is explained by it.

It goes to a file without a name, not into a pipe: Java is never held up by a driver that is busy or suspended, and
nothing changes for it when the driver is killed. A thread cuts the file now and then: a run may last for months.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
from typing import IO

# A warning is some hundred bytes, a stack some thousand: whatever ended Java stands in the last part.
MOST_BYTES = 4 << 20
_KEPT_BYTES = 256 << 10
_LOOK_S = 5.0
_SHOWN_LINES = 8

_OUT_OF_MEMORY = re.compile(r"\b\w*(?:OutOfMemory|OutOfDirectMemory)(?:Error|Exception)\b(?:: [^\r\n]+)?")


class JavaLog:
    """The last part of Java's log. `file` is what Java writes to."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        # Java goes on at the end, wherever that is after a cut.
        descriptor = self.file.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
        self._before_cut = b""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="java log", daemon=True).start()

    def text(self) -> str:
        with self._lock:
            descriptor = self.file.fileno()
            size = os.fstat(descriptor).st_size
            data = os.pread(descriptor, MOST_BYTES, max(0, size - MOST_BYTES))
            return (self._before_cut + data).decode(errors="replace")

    def cut(self) -> None:
        """Drop the oldest part if there is much. A line that is written at this very moment may be lost."""
        with self._lock:
            descriptor = self.file.fileno()
            size = os.fstat(descriptor).st_size
            if size > MOST_BYTES:
                self._before_cut = os.pread(descriptor, _KEPT_BYTES, size - _KEPT_BYTES)
                os.ftruncate(descriptor, 0)

    def stop_watching(self) -> None:
        """Java has ended and will write no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            self.cut()


def out_of_memory(log: str) -> str | None:
    """The error with which memory ran out, in Java's words: the last one in its log. None if there is none."""
    found = _OUT_OF_MEMORY.findall(log)
    return found[-1].strip() if found else None


def last_lines(log: str) -> str:
    return "\n".join(log.strip().splitlines()[-_SHOWN_LINES:])


def memory_hint(current: str | None = None) -> str:
    """What to do when memory has run out."""
    now = f" (now {current})" if current else ""
    return f"raise spark.driver.memory{now}; if that is not possible, lower epoch.bytes, so that less is held at a time"
