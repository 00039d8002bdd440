"""Processes that outlive the command that started them, and are known again for certain.

A process is known by its number, the time it was started at, and a marker in its environment. A number alone may long
belong to somebody else.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARKER = "STREAMLING_DEV_MARKER"
_QUIET_PORTS = range(20_000, 32_000)
_PROC = Path("/proc")
_POLL_SECONDS = 0.1
# Behind the last bracket of /proc/PID/stat, which begins with the state.
_STATE, _STARTED = 0, 19
_LISTENING = "0A"


@dataclass(frozen=True, slots=True)
class Process:
    """`started` counts clock ticks since the machine booted."""

    pid: int
    started: int
    marker: str


def spawn(command: Sequence[str], *, directory: Path, log: Path, marker: str) -> Process:
    """Start a program in a session of its own: neither Ctrl-C nor the end of the terminal reaches it."""
    shell = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(directory), *command]
    pid = os.posix_spawn(
        shell[0],
        shell,
        {**os.environ, MARKER: marker},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
    )
    started = _start_time(pid)
    return Process(pid, started if started is not None else -1, marker)


def alive(process: Process) -> bool:
    """Whether exactly this process runs."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)  # if it is our child and has ended, nobody else takes note of it
    # A process loses its environment a moment before it lets go of its ports.
    return _start_time(process.pid) == process.started and _marker(process.pid) in (process.marker, "")


def find(marker: str) -> Process | None:
    """The process with this marker, whoever started it."""
    for pid in _pids():
        if _marker(pid) == marker and (started := _start_time(pid)) is not None:
            return Process(pid, started, marker)
    return None


def stop(process: Process, *, seconds: float, kindly: bool = True) -> None:
    """Ask it to end, and make it end if it has not after `seconds`. A stranger with its number is left alone."""
    for number in (signal.SIGTERM, signal.SIGKILL) if kindly else (signal.SIGKILL,):
        if not alive(process):
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        deadline = time.monotonic() + seconds
        while alive(process) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of the last one that are still being closed do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses, all different.

    Not those that the system gives to outgoing connections: one could have it before the server has started.
    """
    candidates = random.sample(_QUIET_PORTS, k=100 + count)
    return list(itertools.islice(filter(port_is_free, candidates), count))


def holder_of(port: int) -> str | None:
    """Who listens on a port, in words; None if that cannot be seen."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for pid in _pids():
        with suppress(OSError):
            opened = (_PROC / str(pid) / "fd").iterdir()
            if any(str(entry.readlink()) in sockets for entry in opened):
                words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
                command = b" ".join(words).decode(errors="replace").strip()
                return f"process {pid}: {command if len(command) <= 100 else command[:97] + '...'}"
    return None


def _listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


def _pids() -> Iterator[int]:
    yield from (int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit())


def _start_time(pid: int) -> int | None:
    """None if there is no such process, or only what is left of one that has ended."""
    place = _PROC / str(pid)
    try:
        values = (place / "stat").read_text().rpartition(")")[2].split()
        # Its first thread may be over long before the others, which keep files and ports open.
        over = values[_STATE] in "ZX" and len(list((place / "task").iterdir())) <= 1
    except OSError:
        return None
    return None if over else int(values[_STARTED])


def _marker(pid: int) -> str | None:
    """None if it has none, or is somebody else's; empty if the process is about to end or to become another program."""
    prefix = f"{MARKER}=".encode()
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except ProcessLookupError:
        environment = b""
    except OSError:
        return None
    if not environment:
        return ""
    found = (entry for entry in environment.split(b"\0") if entry.startswith(prefix))
    return next((entry.removeprefix(prefix).decode() for entry in found), None)
