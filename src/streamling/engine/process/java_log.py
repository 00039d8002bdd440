"""The last part of what Java writes to its standard output and error, to explain failures.

Java writes to an unnamed file, not to a pipe: a driver that is busy or suspended never blocks it, and nothing changes
for it when the driver is killed. A thread truncates the file from time to time, because a run may last for months.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
from typing import IO

from streamling.spec.mask import mask_text

# A warning has hundreds of bytes, a stack trace thousands: the reason why Java ended is in the last part.
MAX_BYTES = 4 << 20
_KEPT_BYTES = 256 << 10
_LOOK_S = 5.0
_DISPLAYED_LINES = 8

_OUT_OF_MEMORY = re.compile(r"\b\w*(?:OutOfMemory|OutOfDirectMemory)(?:Error|Exception)\b(?:: [^\r\n]+)?")


class JavaLog:
    """The last part of Java's log. `file` is what Java writes to."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        # Append mode: after the file was truncated Java continues at its new end.
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
            data = os.pread(descriptor, MAX_BYTES, max(0, size - MAX_BYTES))
            return (self._before_cut + data).decode(errors="replace")

    def cut(self) -> None:
        """Drop the oldest part if the file is large. A line that is written at the same moment may be lost."""
        with self._lock:
            descriptor = self.file.fileno()
            size = os.fstat(descriptor).st_size
            if size > MAX_BYTES:
                self._before_cut = os.pread(descriptor, _KEPT_BYTES, size - _KEPT_BYTES)
                os.ftruncate(descriptor, 0)

    def stop_watching(self) -> None:
        """Java has ended and will write no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            self.cut()


def out_of_memory(log: str) -> str | None:
    """The last out-of-memory error in Java's log, in Java's words; None if there is none."""
    errors = _OUT_OF_MEMORY.findall(log)
    return errors[-1].strip() if errors else None


def last_lines(log: str) -> str:
    return mask_text("\n".join(log.strip().splitlines()[-_DISPLAYED_LINES:]))


def memory_hint(current: str | None = None) -> str:
    """What to do when memory has run out."""
    now = f" (now {current})" if current else ""
    return f"raise spark.driver.memory{now}, or lower epoch.bytes to hold fewer rows in memory at a time"
