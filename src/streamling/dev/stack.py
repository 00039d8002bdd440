"""The servers of one project directory: which of them run, on which ports, since when.

    DIRECTORY/kafka/record.json    process, ports and marker, written before the server is started
    DIRECTORY/kafka/server.log     its output since the last start
    DIRECTORY/kafka/data/          its data

The record is written before the process exists, and completed afterwards. If a command is killed in between, the next
command finds the server by its marker.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from streamling.dev.clickhouse import ClickHouseServer
from streamling.dev.kafka import KafkaServer
from streamling.dev.lock import file_lock
from streamling.dev.memory import check_memory
from streamling.dev.observer import Observer
from streamling.dev.postgres import PostgresServer
from streamling.dev.processes import Process, find, free_ports, holder_of, is_alive, port_is_free, spawn, stop
from streamling.dev.registry import RegistryServer
from streamling.dev.server import DevServer, Site
from streamling.errors import (
    PORT_TAKEN,
    SERVER_FAILED,
    STACK_DIRECTORY,
    PermanentError,
    UserError,
)

SERVERS: dict[str, DevServer] = {
    server.name: server for server in (KafkaServer(), RegistryServer(), PostgresServer(), ClickHouseServer())
}
"""All servers, in the order in which they are started and shown."""

_RECORD, _LOG, _LOCK, _IGNORED = "record.json", "server.log", ".lock", ".gitignore"
_POLL_SECONDS = 0.2
_TAIL_LINES = 15


class ServerState(StrEnum):
    RUNNING = "running"
    SILENT = "not answering"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The current state of one server."""

    server: str
    version: str
    state: ServerState
    address: str | None = None
    pid: int | None = None
    since: float | None = None
    log: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Record:
    """The stored facts about a server. Without a pid, a command was about to start it."""

    version: str
    marker: str
    ports: dict[str, int]
    since: float
    pid: int | None = None
    started: int | None = None

    def process(self) -> Process | None:
        """The process of this record; None if it does not run."""
        if self.pid is None or self.started is None:
            return find(self.marker)
        process = Process(self.pid, self.started, self.marker)
        return process if is_alive(process) else None


class Stack:
    """The servers of a directory. Several processes may call its methods at the same time."""

    def __init__(
        self, directory: Path, observer: Observer | None = None, servers: Mapping[str, DevServer] = SERVERS
    ) -> None:
        self.directory = directory
        self._servers = servers
        self._observer = observer or Observer()

    def up(
        self, names: Sequence[str], ports: Mapping[str, int] | None = None, *, without_optional: bool = False
    ) -> None:
        """Start the servers that do not run, and wait until all answer. Ctrl-C stops those that were started.

        `without_optional` leaves out optional servers that cannot run on this machine.
        """
        requested = ports or {}
        with self._locked():
            missing = [self._servers[name] for name in names if not self._adopt(self._servers[name], requested)]
            for server in list(missing):
                try:
                    server.check()
                except UserError as error:
                    if not (without_optional and server.optional):
                        raise
                    self._observer.message(f"{server.name} is left out: {error.message}")
                    missing.remove(server)
                    names = [name for name in names if name != server.name]
                    continue
                _check_port(server, requested)
            check_memory(missing)
            homes = {server.name: server.home(self._observer) for server in missing}
            started: list[DevServer] = []
            try:
                for server in missing:
                    started.append(server)
                    self._start(server, homes[server.name], requested)
                for name in names:
                    self._await_answer(self._servers[name])
            except KeyboardInterrupt:
                self._stop(started)
                raise

    def down(self, names: Sequence[str], *, purge: bool = False) -> list[str]:
        """Stop these servers, and remove their data with `purge`. Returns the names of those that ran."""
        if not self.directory.exists():
            return []
        with self._locked():
            stopped = self._stop([self._servers[name] for name in reversed(names)])
            if purge:
                self._purge([self._servers[name] for name in names])
        return stopped

    def kill(self, name: str) -> None:
        """End a server like a power cut would. For tests."""
        server = self._servers[name]
        record = self._record(server)
        process = record.process() if record else None
        if process is not None:
            stop(process, server.kill_signals, seconds=server.stop_seconds)

    def status(self, names: Collection[str] | None = None) -> list[ServerStatus]:
        """The status of these servers, or of all. Each running server is pinged."""
        return [self._status(server) for name, server in self._servers.items() if names is None or name in names]

    def is_running(self, name: str) -> bool:
        """Whether its process exists, answering or not."""
        record = self._record(self._servers[name])
        return record is not None and record.process() is not None

    def site(self, name: str) -> Site:
        """Directory and ports of a running server. Raises UserError SERVER_FAILED if it does not run."""
        record = self._record(self._servers[name])
        if record is None or not self.is_running(name):
            raise UserError(
                SERVER_FAILED,
                f"{name} does not run in {self.directory}",
                hint=f"start it with `streamling dev up {name}`, or name the directory it runs in with --directory",
            )
        return self._site(self._servers[name], record)

    def variables(self, names: Collection[str] | None = None) -> dict[str, str]:
        """The settings for pipelines that use the running servers: all of them, or these."""
        variables: dict[str, str] = {}
        for name, server in self._servers.items():
            record = self._record(server)
            if (names is None or name in names) and record is not None and record.process() is not None:
                variables |= server.variables(self._site(server, record))
        return variables

    # Starting

    def _adopt(self, server: DevServer, requested: Mapping[str, int]) -> bool:
        """Use a server that runs already: complete its record and wait for its answer. False: it must be started."""
        record = self._record(server)
        if record is None or (process := record.process()) is None:
            return False
        wanted = requested.get(server.name)
        if wanted not in (None, record.ports[server.name]):
            raise UserError(
                PORT_TAKEN,
                f"{server.name} runs already, on port {record.ports[server.name]}, not on port {wanted}",
                hint=f"streamling dev down {server.name}, then up again; its data is kept",
            )
        self._write(server, replace(record, pid=process.pid, started=process.started))
        try:
            self._await_answer(server)
        except PermanentError:
            self._observer.message(f"{server.name} runs, but did not answer: starting it again")
            return False
        return True

    def _start(self, server: DevServer, home: Path, requested: Mapping[str, int]) -> None:
        directory = self._directory(server)
        directory.mkdir(exist_ok=True)
        if self._record(server) is None and any(directory.iterdir()):
            raise UserError(
                STACK_DIRECTORY,
                f"{directory} contains files that no server has written",
                hint="choose another directory with --directory",
            )
        record = _Record(server.version, uuid.uuid4().hex, self._ports(server, requested), time.time())
        self._write(server, record)
        command = server.command(home, self._site(server, record))
        process = spawn(command, directory=directory, log=directory / _LOG, marker=record.marker)
        self._write(server, replace(record, pid=process.pid, started=process.started))
        self._observer.message(f"starting {server.name} {server.version}")

    def _ports(self, server: DevServer, requested: Mapping[str, int]) -> dict[str, int]:
        _check_port(server, requested)
        # Clients may still be configured with the port of the last start.
        earlier = record.ports.get(server.name) if (record := self._record(server)) else None
        ports = (requested.get(server.name), earlier, server.port)
        candidates = [port for port in ports if port is not None and port_is_free(port)]
        free, *inner = free_ports(1 + len(server.inner_ports))
        return {server.name: candidates[0] if candidates else free, **dict(zip(server.inner_ports, inner, strict=True))}

    def _await_answer(self, server: DevServer) -> None:
        """Wait until it answers. If it does not within its time, it is stopped."""
        record = self._record(server)
        if record is None:
            raise AssertionError(f"{server.name} was not started")
        site, reason = self._site(server, record), "it got no request"
        deadline = time.monotonic() + server.start_seconds
        while time.monotonic() < deadline:
            try:
                server.ping(site)
                server.configure(site)
                answered = True
            except Exception as error:  # a starting server can fail to answer in many ways
                answered, reason = False, str(error) or type(error).__name__
            if record.process() is None:  # checked even after an answer, which may be another server's
                raise self._failure(server, "ended during its start")
            if answered:
                return
            time.sleep(_POLL_SECONDS)
        self._stop([server])
        raise self._failure(server, f"did not answer within {server.start_seconds:.0f} s: {reason}")

    def _failure(self, server: DevServer, what: str) -> PermanentError:
        log = self._directory(server) / _LOG
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if log.exists() else []
        return PermanentError(
            SERVER_FAILED,
            f"{server.name} {what}",
            quote="\n  ".join(lines) or "its log is empty",
            hint=f"its log is {log}",
        )

    # Stopping

    def _stop(self, servers: Sequence[DevServer]) -> list[str]:
        stopped = []
        for server in servers:
            record = self._record(server)
            process = record.process() if record is not None else None
            if process is not None:
                stop(process, server.stop_signals, seconds=server.stop_seconds)
                stopped.append(server.name)
        return stopped

    def _purge(self, servers: Sequence[DevServer]) -> None:
        """Remove only what the servers have written: users may keep other files in the directory."""
        for server in servers:
            if self._record(server) is not None:
                shutil.rmtree(self._directory(server), ignore_errors=True)
        if {entry.name for entry in self.directory.iterdir()} <= {_LOCK, _IGNORED}:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Records

    def _status(self, server: DevServer) -> ServerStatus:
        record = self._record(server)
        process = record.process() if record is not None else None
        file = self._directory(server) / _LOG
        log = str(file) if file.exists() else None
        if record is None or process is None:
            return ServerStatus(server.name, server.version, ServerState.STOPPED, log=log)
        site = self._site(server, record)
        try:
            server.ping(site)
            state, reason = ServerState.RUNNING, None
        except Exception as error:  # the status shows it, whatever it is
            state, reason = ServerState.SILENT, str(error) or type(error).__name__
        address = server.address(site)
        return ServerStatus(server.name, record.version, state, address, process.pid, record.since, log, reason)

    def _site(self, server: DevServer, record: _Record) -> Site:
        return Site(self._directory(server), record.ports)

    def _directory(self, server: DevServer) -> Path:
        return self.directory / server.name

    def _record(self, server: DevServer) -> _Record | None:
        try:
            return _Record(**json.loads((self._directory(server) / _RECORD).read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                STACK_DIRECTORY,
                f"{self._directory(server) / _RECORD} cannot be read: {error}",
                hint="if the server does not run any more, remove the file",
            ) from error

    def _write(self, server: DevServer, record: _Record) -> None:
        file = self._directory(server) / _RECORD
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(record)))
        draft.replace(file)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            if not self.directory.exists():
                self.directory.mkdir(parents=True)
                (self.directory / _IGNORED).write_text("*\n")
            lock = self.directory / _LOCK
            lock.touch()
        except OSError as error:
            raise UserError(
                STACK_DIRECTORY, f"{self.directory} cannot be written to: {error.strerror}", cause=error
            ) from error
        with file_lock(lock, self._observer, "another command that uses this stack"):
            yield


def _check_port(server: DevServer, requested: Mapping[str, int]) -> None:
    wanted = requested.get(server.name)
    if wanted is not None and not port_is_free(wanted):
        raise UserError(
            PORT_TAKEN,
            f"port {wanted} for {server.name} is taken by {holder_of(wanted) or 'a process of another user'}",
            hint="stop that process, or choose another port; without --port a free one is used",
        )
