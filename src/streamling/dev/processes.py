"""Processes that outlive the command that started them, and are identified for certain by later commands.

A process is identified by its pid, its start time, and a marker in its environment: the system reuses pids.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARKER = "STREAMLING_DEV_MARKER"
_QUIET_PORTS = range(20_000, 32_000)
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Process:
    """`started` counts clock ticks since the machine booted, which stay the same when the clock is set."""

    pid: int
    started: int
    marker: str


def spawn(command: Sequence[str], *, directory: Path, log: Path, marker: str) -> Process:
    """Start a program in its own session, so that neither Ctrl-C nor closing the terminal ends it."""
    shell = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(directory), *command]
    pid = os.posix_spawn(
        shell[0],
        shell,
        {**os.environ, MARKER: marker},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
    )
    entry = _entry(pid)
    return Process(pid, entry.started if entry else -1, marker)


def is_alive(process: Process) -> bool:
    """Whether exactly this process runs, and not another one with its pid. The entry of an ended child is removed."""
    # A process loses its environment a moment before it closes its ports.
    entry = _entry(process.pid) if _marker(process.pid) in (process.marker, "") else None
    if entry is None or entry.started != process.started:
        return False
    if entry.has_ended:
        # Until its parent does this, the pid looks taken: Postgres would not start next to its own lock file.
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    return not entry.has_ended


def find(marker: str) -> Process | None:
    """The process with this marker, whichever command started it."""
    for pid in psutil.pids():
        if _marker(pid) == marker and (entry := _entry(pid)) and not entry.has_ended:
            return Process(pid, entry.started, marker)
    return None


def stop(process: Process, signals: Sequence[signal.Signals], *, seconds: float) -> None:
    """Send one signal after the other, and wait up to `seconds` after each; the last one is SIGKILL.

    Another process that has its pid by now gets no signal.
    """
    for number in (*signals, signal.SIGKILL):
        if not is_alive(process):
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        deadline = time.monotonic() + seconds
        while is_alive(process) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of the last server in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens.

    Not from the range of outgoing connections: one of these could take the port before the server has started.
    """
    candidates = random.sample(_QUIET_PORTS, k=100 + count)
    return list(itertools.islice(filter(port_is_free, candidates), count))


def holder_of(port: int) -> str | None:
    """The process that listens on a port, in words; None if this user may not see it."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid is not None:
                command = " ".join(psutil.Process(connection.pid).cmdline())
                return f"process {connection.pid}: {command if len(command) <= 100 else command[:97] + '...'}"
    return None


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the system's table of processes says about one of them."""

    started: int
    has_ended: bool


def _entry(pid: int) -> _Entry | None:
    """None if there is no such process. psutil counts from the epoch, which moves when the clock is set."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, threads, started = facts[0], int(facts[17]), int(facts[19])
    # The first thread may end long before the others, which keep files and ports open.
    return _Entry(started, has_ended=state in "ZX" and threads <= 1)


def _marker(pid: int) -> str | None:
    """None if it has none or belongs to another user; empty if the process is ending or becoming another program."""
    try:
        environment = psutil.Process(pid).environ()
    except psutil.NoSuchProcess:
        return ""
    except (psutil.AccessDenied, OSError):
        return None
    return environment.get(MARKER) if environment else ""
