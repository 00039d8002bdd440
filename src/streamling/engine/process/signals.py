"""SIGTERM and SIGINT: a flag and a byte in a pipe, nothing else.

A handler runs between two instructions of the main thread, so it must not take locks or raise. The main thread waits
on the pipe; everything that follows from a signal happens there.

The system may give a signal to any thread, and it may come in the moment before the main thread begins to wait. In both
cases the wait is not interrupted, and no instruction follows after which the handler could run. So the first byte is
written by the interpreter itself, in whichever thread and at whatever moment the signal comes.
"""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

_listening: Signals | None = None


def listen() -> Signals:
    """The ears of this process, from the first call on; to be called in the main thread."""
    global _listening
    if _listening is None:
        _listening = Signals()
    return _listening


class Signals:
    """Hears the stop signals of this process; see `listen`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.received: signal.Signals | None = None
        self.insisted = False
        """Ctrl-C was pressed again: whoever sits there does not want to wait."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.insisted = self.received is not None and number == signal.SIGINT
        self.received = signal.Signals(number)
        self.wake()

    def wake(self) -> None:
        """End a wait; also for other threads that have news for the main one."""
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return  # the pipe is full of reasons to wake up already

    def wait(self, seconds: float | None) -> None:
        """Until a signal, a `wake`, or the time is over."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        if ready:
            os.read(self._read, 4096)
