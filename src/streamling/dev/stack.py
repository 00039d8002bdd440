"""The servers of one project directory: which run, where, since when.

    DIRECTORY/kafka/record.json    process, ports and marker, written before the server is started
    DIRECTORY/kafka/server.log     what it said since its last start
    DIRECTORY/kafka/data/          what it keeps

The record is written before the process exists and completed when it does. A command that dies in between leaves a
server that the next command finds by its marker.
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

from streamling.dev.kafka import Kafka
from streamling.dev.lock import locked
from streamling.dev.memory import check_memory
from streamling.dev.onlooker import Onlooker
from streamling.dev.postgres import Postgres
from streamling.dev.processes import Process, alive, find, free_ports, holder_of, port_is_free, spawn, stop
from streamling.dev.registry import Registry
from streamling.dev.server import Server, Site
from streamling.errors import (
    PORT_TAKEN,
    SERVER_FAILED,
    STACK_DIRECTORY,
    PermanentError,
    UserError,
)

SERVERS: dict[str, Server] = {server.name: server for server in (Kafka(), Registry(), Postgres())}
"""All there are, in the order in which they are started and shown."""
DEFAULT_DIRECTORY = Path(".streamling/dev")

_RECORD, _LOG, _LOCK, _IGNORED = "record.json", "server.log", ".lock", ".gitignore"
_POLL_SECONDS = 0.2
_TAIL_LINES = 15


class State(StrEnum):
    RUNNING = "running"
    SILENT = "not answering"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Status:
    """One server as it is now."""

    server: str
    version: str
    state: State
    address: str | None = None
    pid: int | None = None
    since: float | None = None
    log: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Record:
    """What is remembered of a server. Without a pid it was about to be started."""

    version: str
    marker: str
    ports: dict[str, int]
    since: float
    pid: int | None = None
    started: int | None = None

    def process(self) -> Process | None:
        """The process of this record, if it runs."""
        if self.pid is None or self.started is None:
            return find(self.marker)
        process = Process(self.pid, self.started, self.marker)
        return process if alive(process) else None


class Stack:
    """The servers of a directory. Every method may be called while other processes call the same."""

    def __init__(
        self, directory: Path, onlooker: Onlooker | None = None, servers: Mapping[str, Server] = SERVERS
    ) -> None:
        self.directory = directory
        self._servers = servers
        self._onlooker = onlooker or Onlooker()

    def up(self, names: Sequence[str], ports: Mapping[str, int] | None = None) -> None:
        """Start what does not run, and wait until all answer. What this call has started ends with Ctrl-C."""
        given = ports or {}
        with self._locked():
            waiting = [self._servers[name] for name in names if not self._runs(self._servers[name], given)]
            for server in waiting:
                server.check()
                _check_port(server, given)
            check_memory(waiting)
            homes = {server.name: server.home(self._onlooker) for server in waiting}
            begun: list[Server] = []
            try:
                for server in waiting:
                    begun.append(server)
                    self._begin(server, homes[server.name], given)
                for name in names:
                    self._await(self._servers[name])
            except KeyboardInterrupt:
                self._end(begun)
                raise

    def down(self, names: Sequence[str], *, purge: bool = False) -> list[str]:
        """Stop these servers, and remove what they keep if asked to. Gives the names of those that ran."""
        if not self.directory.exists():
            return []
        with self._locked():
            stopped = self._end([self._servers[name] for name in reversed(names)])
            if purge:
                self._purge([self._servers[name] for name in names])
        return stopped

    def kill(self, name: str) -> None:
        """End a server as a power cut does. For tests of what follows."""
        server = self._servers[name]
        record = self._record(server)
        process = record.process() if record else None
        if process is not None:
            stop(process, server.kill_signals, seconds=server.stop_seconds)

    def status(self, names: Collection[str] | None = None) -> list[Status]:
        """These servers, or all, each asked whether it answers."""
        return [self._status(server) for name, server in self._servers.items() if names is None or name in names]

    def runs(self, name: str) -> bool:
        """Whether its process is there, answering or not."""
        record = self._record(self._servers[name])
        return record is not None and record.process() is not None

    def site(self, name: str) -> Site:
        """Where a running server is. Raises UserError SERVER_FAILED."""
        record = self._record(self._servers[name])
        if record is None or not self.runs(name):
            raise UserError(
                SERVER_FAILED,
                f"{name} does not run in {self.directory}",
                hint=f"streamling dev up {name}",
            )
        return self._site(self._servers[name], record)

    def variables(self, names: Collection[str] | None = None) -> dict[str, str]:
        """The settings with which pipelines use what runs, of these servers or of all."""
        found: dict[str, str] = {}
        for name, server in self._servers.items():
            record = self._record(server)
            if (names is None or name in names) and record is not None and record.process() is not None:
                found |= server.variables(self._site(server, record))
        return found

    # Starting

    def _runs(self, server: Server, given: Mapping[str, int]) -> bool:
        record = self._record(server)
        if record is None or (process := record.process()) is None:
            return False
        wanted = given.get(server.name)
        if wanted not in (None, record.ports[server.name]):
            raise UserError(
                PORT_TAKEN,
                f"{server.name} runs already, on port {record.ports[server.name]}, not on port {wanted}",
                hint=f"streamling dev down {server.name}, then up again; its data stay",
            )
        self._write(server, replace(record, pid=process.pid, started=process.started))
        try:
            self._await(server)
        except PermanentError:
            self._onlooker.said(f"{server.name} runs, but did not answer: starting it anew")
            return False
        return True

    def _begin(self, server: Server, home: Path, given: Mapping[str, int]) -> None:
        directory = self._directory(server)
        directory.mkdir(exist_ok=True)
        if self._record(server) is None and any(directory.iterdir()):
            raise UserError(
                STACK_DIRECTORY, f"{directory} holds something else", hint="name another directory with --directory"
            )
        record = _Record(server.version, uuid.uuid4().hex, self._ports(server, given), time.time())
        self._write(server, record)
        command = server.command(home, self._site(server, record))
        process = spawn(command, directory=directory, log=directory / _LOG, marker=record.marker)
        self._write(server, replace(record, pid=process.pid, started=process.started))
        self._onlooker.said(f"starting {server.name} {server.version}")

    def _ports(self, server: Server, given: Mapping[str, int]) -> dict[str, int]:
        _check_port(server, given)
        # A port that clients were told yesterday is better than any other.
        earlier = record.ports.get(server.name) if (record := self._record(server)) else None
        candidates = [
            port for port in (given.get(server.name), earlier, server.port) if port is not None and port_is_free(port)
        ]
        free, *inner = free_ports(1 + len(server.inner_ports))
        return {server.name: candidates[0] if candidates else free, **dict(zip(server.inner_ports, inner, strict=True))}

    def _await(self, server: Server) -> None:
        """Until it answers. One that never will is stopped."""
        record = self._record(server)
        if record is None:
            raise AssertionError(f"{server.name} was not begun")
        site, reason = self._site(server, record), "it was not asked"
        deadline = time.monotonic() + server.start_seconds
        while time.monotonic() < deadline:
            try:
                server.ask(site)
                server.settle(site)
                answered = True
            except Exception as error:  # a server that starts has many ways not to answer
                answered, reason = False, str(error) or type(error).__name__
            if record.process() is None:  # also if somebody else answers in its place
                raise self._failed(server, "ended at its start")
            if answered:
                return
            time.sleep(_POLL_SECONDS)
        self._end([server])
        raise self._failed(server, f"did not answer within {server.start_seconds:.0f} s: {reason}")

    def _failed(self, server: Server, what: str) -> PermanentError:
        log = self._directory(server) / _LOG
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if log.exists() else []
        return PermanentError(
            SERVER_FAILED,
            f"{server.name} {what}",
            quote="\n  ".join(lines) or "its log is empty",
            hint=f"its log is {log}",
        )

    # Stopping

    def _end(self, servers: Sequence[Server]) -> list[str]:
        stopped = []
        for server in servers:
            record = self._record(server)
            process = record.process() if record is not None else None
            if process is not None:
                stop(process, server.stop_signals, seconds=server.stop_seconds)
                stopped.append(server.name)
        return stopped

    def _purge(self, servers: Sequence[Server]) -> None:
        """Only what is known to be ours: the directory may be one that users keep other things in."""
        for server in servers:
            if self._record(server) is not None:
                shutil.rmtree(self._directory(server), ignore_errors=True)
        if {entry.name for entry in self.directory.iterdir()} <= {_LOCK, _IGNORED}:
            shutil.rmtree(self.directory, ignore_errors=True)

    # What is known

    def _status(self, server: Server) -> Status:
        record = self._record(server)
        process = record.process() if record is not None else None
        log = self._directory(server) / _LOG
        shown = str(log) if log.exists() else None
        if record is None or process is None:
            return Status(server.name, server.version, State.STOPPED, log=shown)
        site = self._site(server, record)
        try:
            server.ask(site)
            state, reason = State.RUNNING, None
        except Exception as error:  # whatever it is, it is what was asked for
            state, reason = State.SILENT, str(error) or type(error).__name__
        address = server.address(site)
        return Status(server.name, record.version, state, address, process.pid, record.since, shown, reason)

    def _site(self, server: Server, record: _Record) -> Site:
        return Site(self._directory(server), record.ports)

    def _directory(self, server: Server) -> Path:
        return self.directory / server.name

    def _record(self, server: Server) -> _Record | None:
        try:
            return _Record(**json.loads((self._directory(server) / _RECORD).read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                STACK_DIRECTORY,
                f"{self._directory(server) / _RECORD} cannot be read: {error}",
                hint="if no server of it runs any more, remove the file",
            ) from error

    def _write(self, server: Server, record: _Record) -> None:
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
        with locked(lock, self._onlooker, "another command that works on this stack"):
            yield


def _check_port(server: Server, given: Mapping[str, int]) -> None:
    wanted = given.get(server.name)
    if wanted is not None and not port_is_free(wanted):
        raise UserError(
            PORT_TAKEN,
            f"port {wanted}, asked for {server.name}, is taken by {holder_of(wanted) or 'a process of somebody else'}",
            hint="stop it, or ask for another port; without --port a free one is found",
        )
