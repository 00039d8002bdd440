"""The servers of `streamling dev` for tests. They end with the tests, in whatever way the tests end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

import streamling
from streamling.dev.processes import free_ports
from streamling.dev.server import DevServer, Site
from streamling.dev.stack import SERVERS, Stack

# Reads until this process is gone, then stops what it may have left.
_GUARD = 'cat > /dev/null; exec "$@"'


class LocalServer:
    """One server of a stack that tests share."""

    def __init__(self, stack: Stack, name: str) -> None:
        self._stack, self._name = stack, name
        self._paused: list[psutil.Process] = []
        (self._port,) = free_ports(1)
        self.start()

    @property
    def site(self) -> Site:
        return self._stack.site(self._name)

    def start(self) -> None:
        """On the port it had before; returns when it answers."""
        self._stack.up([self._name], {self._name: self._port})

    def stop(self) -> None:
        self._stack.down([self._name])

    def kill(self) -> None:
        """As a power cut does."""
        self._stack.kill(self._name)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Every process of it stands still: connections stay, nobody answers."""
        self._paused = self.processes()
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._paused = []

    def processes(self) -> list[psutil.Process]:
        """First the one that would start others."""
        (status,) = self._stack.status([self._name])
        process = psutil.Process(status.pid)
        return [process, *process.children(recursive=True)]

    def _signal(self, number: signal.Signals) -> None:
        for process in self._paused:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@contextmanager
def local_stack(servers: Mapping[str, DevServer] = SERVERS) -> Iterator[Stack]:
    """A stack in a directory of its own, without servers yet."""
    with tempfile.TemporaryDirectory(prefix="streamling-tests-") as temporary:
        directory = Path(temporary) / "stack"
        down = ["-m", "streamling.cli.main", "dev", "down", "--purge", "--directory", str(directory)]
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", sys.executable, *down],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(streamling.__file__).parents[1])},
            start_new_session=True,
        )
        try:
            stack = Stack(directory, servers=servers)
            yield stack
            for name in servers:  # nobody needs what an orderly end would save
                stack.kill(name)
            stack.down(list(servers), purge=True)
        finally:
            guard.communicate()
