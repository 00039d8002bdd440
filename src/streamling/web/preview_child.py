"""The process of a preview: `streamling preview --format events`, and the lines that it prints."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

# The child plans the pipeline and looks up columns before it prints its first line.
_READY_S = 30.0
# Then it has opened nothing that must be closed in order.
_END_S = 5.0
# Rows are shortened to 64 kB each.
_MAX_LINE = 1 << 20
# Of what it has printed on standard error, the last characters are kept.
_MAX_ERROR = 8_000


@dataclass(frozen=True, slots=True)
class Event:
    """What a client gets: a row as the admin API sends it, or an event with a name."""

    data: str
    name: str | None = None

    def __str__(self) -> str:
        return f"event: {self.name}\ndata: {self.data}\n\n" if self.name else f"data: {self.data}\n\n"


class Ended(Exception):
    """The child ended before it was ready."""


async def start_child(command: Sequence[str], text: str, seconds: int) -> PreviewChild:
    """Start a preview of a pipeline text, which it reads from its standard input. Raises OSError.

    It ends when its standard output is closed, so it does not survive this process.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        "-",
        "--format",
        "events",
        "--seconds",
        str(seconds),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=_MAX_LINE,
        start_new_session=True,
    )
    return PreviewChild(process, text)


class PreviewChild:
    """A running preview. Ended by `end`, or at once by `terminate`."""

    def __init__(self, process: Process, text: str) -> None:
        self._process = process
        self._errors = ""
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(maxsize=1000)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.terminated = False
        """Whether it was asked to end."""
        self._writing = asyncio.create_task(self._write(text))
        self._task = asyncio.create_task(self._read())
        self._reading: asyncio.Task[Event | None] | None = None
        self._reaper: asyncio.Task[None] | None = None

    @property
    def failure(self) -> str | None:
        """What a child that has failed by itself has printed last."""
        failed = self._process.returncode not in (None, 0) and not self.terminated
        return (self._errors.strip() or f"exit code {self._process.returncode}") if failed else None

    async def ready(self) -> None:
        """Wait until the preview runs. Raises TimeoutError or Ended."""
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), _READY_S)
        except TimeoutError:
            raise TimeoutError(f"no answer within {_READY_S:g} s") from None

    def next_event(self) -> asyncio.Task[Event | None]:
        """The next event; None at the end. A call before it is done gives the same task."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._events.get())
        return self._reading

    def terminate(self) -> None:
        """Ask the process to end; it is killed if it does not do so in time."""
        if self._process.returncode is None and not self.terminated:
            self.terminated = True
            with suppress(ProcessLookupError):
                self._process.terminate()
            self._reaper = asyncio.create_task(self._reap())

    async def end(self) -> None:
        """End the process and wait for it."""
        self.terminate()
        await asyncio.shield(self._task)

    async def _reap(self) -> None:
        try:
            await asyncio.wait_for(self._process.wait(), _END_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self) -> None:
        """Passes the lines on until the process has ended."""
        errors = asyncio.create_task(self._read_errors())
        try:
            while line := await self._line():
                self._take(line)
        finally:
            await self._process.wait()
            with suppress(TimeoutError):  # a process that it has started may hold the pipe
                await asyncio.wait_for(errors, _END_S)
            if not self._ready.done():
                self._ready.set_exception(Ended(self._errors.strip() or f"exit code {self._process.returncode}"))
                self._ready.exception()  # nobody may be waiting
            self._put(None)

    async def _write(self, text: str) -> None:
        if self._process.stdin is None:
            raise AssertionError("no pipe")
        with suppress(ConnectionError):  # it has ended; its messages say why
            self._process.stdin.write(text.encode())
            await self._process.stdin.drain()
            self._process.stdin.close()

    async def _line(self) -> bytes:
        if self._process.stdout is None:
            raise AssertionError("no pipe")
        while True:
            try:
                return await self._process.stdout.readline()
            except ValueError:  # a line that is too long, which is dropped
                continue

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\n")
        try:
            event = json.loads(text)
        except ValueError:
            return  # a script or a plugin may print to standard output, too
        if not isinstance(event, dict):
            return
        if event.get("event") == "start" and not self._ready.done():
            self._ready.set_result(None)
        elif event.get("event") == "problem":
            self._put(Event(json.dumps({"node": event.get("node"), "message": event.get("message")}), "problem"))
        elif "topology_node_key" in event:
            self._put(Event(text))

    def _put(self, event: Event | None) -> None:
        if self._events.full():  # the client does not read: the oldest events make room
            self._events.get_nowait()
        self._events.put_nowait(event)

    async def _read_errors(self) -> None:
        if self._process.stderr is None:
            raise AssertionError("no pipe")
        while chunk := await self._process.stderr.read(1 << 16):
            self._errors = (self._errors + chunk.decode(errors="replace"))[-_MAX_ERROR:]
