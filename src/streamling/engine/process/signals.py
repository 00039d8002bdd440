"""SIGTERM and SIGINT: the handler sets a flag and writes a byte to a pipe, nothing else.

A handler runs between two instructions of the main thread, so it must not take locks or raise. The main thread waits
on the pipe and does everything that follows from a signal.

The system may deliver a signal to any thread, or just before the main thread begins to wait. In both cases the wait is
not interrupted, and the main thread executes no instruction after which the handler could run. So the interpreter
itself writes the first byte (`set_wakeup_fd`), whatever the thread and the moment.
"""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

_signals: Signals | None = None


def listen() -> Signals:
    """The signals of this process, handled from the first call on. The first call must be made in the main thread."""
    global _signals
    if _signals is None:
        _signals = Signals()
    return _signals


class Signals:
    """Receives the stop signals of this process; see `listen`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.received: signal.Signals | None = None
        self.interrupted_again = False
        """Ctrl-C was pressed again: the user does not want to wait."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.interrupted_again = self.received is not None and number == signal.SIGINT
        self.received = signal.Signals(number)
        self.wake()

    def wake(self) -> None:
        """End a wait; other threads call it to make the main thread look at what they have done."""
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return  # the pipe is full: the reader wakes up in any case

    def wait(self, seconds: float | None) -> None:
        """Wait for a signal or a `wake`, for at most this long."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        if ready:
            os.read(self._read, 4096)
