"""A person at a terminal: runs a command in a pseudo-terminal and sees what a terminal would show."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte

import streamling
from support import without_spark

_SOURCE = Path(streamling.__file__).parents[1]
_SCROLLED = 2000


class Terminal:
    """One command in a terminal of that size. `raw` is all it has written."""

    def __init__(
        self,
        arguments: list[str],
        cwd: Path,
        *,
        columns: int = 80,
        lines: int = 24,
        environment: Mapping[str, str] | None = None,
        stdout: Path | None = None,
        spark: bool = True,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=_SCROLLED, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.code: int | None = None
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("STREAMLING", "RUST_LOG"))}
        self._pid, self._fd = pty.fork()
        if self._pid == 0:  # pragma: no cover: the child
            os.chdir(cwd)
            if stdout is not None:
                os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT, 0o644), 1)
            environ = {**inherited, "TERM": "xterm-256color", "PYTHONPATH": str(_SOURCE), **(environment or {})}
            program = ["-m", "streamling.cli.main"] if spark else [without_spark.__file__]
            command = [sys.executable, *program, *arguments]
            # Whatever happens, this process must not continue as a second pytest.
            try:
                time.sleep(0.05)  # until the size is set
                os.execvpe(command[0], command, environ)
            finally:
                os._exit(127)
        self._resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        while select.select([self._fd], [], [], 0)[0] and self._look(0):
            pass  # output that was written for the old size
        self.screen.resize(lines, columns)
        self._resize(columns, lines)

    def _resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    @property
    def text(self) -> str:
        """What is on the screen, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    @property
    def everything(self) -> str:
        """The screen, and what has scrolled out of it."""
        top = ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*top, self.text])

    def until(self, condition: Callable[[], object], timeout: float = 120.0) -> None:
        """Read the screen until the condition is true; it is an error if the command ends before."""
        deadline = time.monotonic() + timeout
        while not condition():
            if not self._look(0.05) and not condition():
                raise AssertionError(f"ended with {self.code}:\n{self.everything}")
            if time.monotonic() > deadline:
                raise AssertionError(f"never came:\n{self.everything}")

    def look_for(self, seconds: float) -> None:
        """Read the screen for some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._look(0.02):
            pass

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for the end of the command. Returns its exit code."""
        deadline = time.monotonic() + timeout
        while self._look(0.05):
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"still running:\n{self.everything}")
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        if self.code is None:
            os.kill(self._pid, signal.SIGKILL)
            while self._look(0.05):
                pass

    def _look(self, seconds: float) -> bool:
        """Read what was written; False after the end of the command."""
        if self.code is not None:
            return False
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux: the other end was closed
            data = b""
        if data:
            self.raw += data
            self._stream.feed(data)
            return True
        os.close(self._fd)
        self.code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return False
