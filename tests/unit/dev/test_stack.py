"""Servers of a directory are started once and found after every kind of failure; other processes are left alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamling.dev import memory, processes
from streamling.dev.observer import Observer
from streamling.dev.processes import MARKER, is_alive, spawn
from streamling.dev.stack import ServerState, ServerStatus, Stack
from streamling.errors import (
    JAVA_NOT_FOUND,
    PORT_TAKEN,
    SERVER_FAILED,
    STACK_DIRECTORY,
    StreamlingError,
    UserError,
)
from support import small_servers
from support.small_servers import Web, web_stack

PROGRAM = Path(small_servers.__file__)
# A busy machine may take seconds to start Python.
TIMEOUT_S = 30.0


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for a stack; what runs in it at the end is stopped."""
    place = tmp_path / "project" / "dev"
    yield place
    if (place / "web" / "record.json").exists():
        with suppress(StreamlingError):
            web_stack(place).down(["web"])


def status(stack: Stack) -> ServerStatus:
    (only,) = stack.status()
    return only


def record(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "web" / "record.json").read_text())
    return content


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def command(directory: Path, seconds: float = 0.0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(PROGRAM), str(directory), str(seconds)], stderr=subprocess.PIPE)


def marked(marker: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get(MARKER) == marker]


def refused(action: Callable[[], object]) -> StreamlingError:
    with pytest.raises(StreamlingError) as caught:
        action()
    return caught.value


# Start and stop


def test_a_server_answers_after_up_and_is_gone_after_down(directory: Path) -> None:
    stack = web_stack(directory)
    assert status(stack).state is ServerState.STOPPED
    stack.up(["web"])
    running = status(stack)
    assert running.state is ServerState.RUNNING
    assert stack.variables() == {"WEB": running.address}
    assert stack.down(["web"]) == ["web"]
    assert status(stack).state is ServerState.STOPPED
    assert stack.variables() == {}
    assert stack.down(["web"]) == []


def test_up_twice_is_up_once(directory: Path) -> None:
    stack = web_stack(directory)
    stack.up(["web"])
    before = status(stack)
    stack.up(["web"])
    assert status(stack) == before


def test_a_server_outlives_the_command_and_its_terminal(directory: Path) -> None:
    assert command(directory).wait(TIMEOUT_S) == 0
    running = status(web_stack(directory))
    assert running.state is ServerState.RUNNING
    assert running.pid is not None
    assert os.getsid(running.pid) == running.pid


def test_a_server_that_was_stopped_comes_back_on_its_port_with_its_data(directory: Path) -> None:
    stack = web_stack(directory)
    stack.up(["web"], {"web": processes.free_ports(1)[0]})
    (directory / "web" / "data").write_text("kept")
    address = status(stack).address
    stack.down(["web"])
    stack.up(["web"])
    assert status(stack).address == address
    assert (directory / "web" / "data").read_text() == "kept"


def test_purging_removes_what_is_ours_and_nothing_else(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / ".gitignore").write_text("mine")
    (directory / "notes").write_text("mine")
    stack = web_stack(directory)
    stack.up(["web"])
    stack.down(["web"], purge=True)
    assert {entry.name for entry in directory.iterdir()} == {".gitignore", "notes", ".lock"}
    assert (directory / ".gitignore").read_text() == "mine"


def test_purging_a_directory_that_up_has_made_removes_it(directory: Path) -> None:
    stack = web_stack(directory)
    stack.up(["web"])
    assert (directory / ".gitignore").read_text() == "*\n"
    stack.down(["web"], purge=True)
    assert not directory.exists()


def test_what_does_not_run_is_named_with_the_way_to_start_it(directory: Path) -> None:
    error = refused(lambda: web_stack(directory).site("web"))
    assert error.condition is SERVER_FAILED
    assert "`streamling dev up web`" in (error.hint or "")
    assert "--directory" in (error.hint or "")


# Failures


def test_a_command_that_is_killed_while_a_server_starts_leaves_one_that_is_found(directory: Path) -> None:
    starting = command(directory, seconds=2)
    eventually(lambda: (directory / "web" / "record.json").exists() and record(directory)["pid"] is not None)
    starting.kill()
    starting.wait()
    pid = record(directory)["pid"]
    stack = web_stack(directory)
    stack.up(["web"])
    assert status(stack).pid == pid


def test_a_server_without_a_recorded_pid_is_found_by_its_marker(directory: Path) -> None:
    stack = web_stack(directory)
    stack.up(["web"])
    known = record(directory)
    assert marked(known["marker"]) == [known["pid"]]
    (directory / "web" / "record.json").write_text(json.dumps({**known, "pid": None, "started": None}))
    stack.up(["web"])
    assert record(directory) == known
    assert stack.down(["web"]) == ["web"]
    assert processes.find(known["marker"]) is None


def test_a_server_that_died_is_started_again(directory: Path) -> None:
    stack = web_stack(directory)
    stack.up(["web"])
    before = status(stack).pid
    stack.kill("web")
    assert status(stack).state is ServerState.STOPPED
    stack.up(["web"])
    assert status(stack).state is ServerState.RUNNING
    assert status(stack).pid != before


def test_another_process_with_the_pid_of_a_server_is_left_alone(directory: Path) -> None:
    stack = web_stack(directory)
    stack.up(["web"])
    stack.down(["web"])
    with subprocess.Popen(["sleep", "60"]) as stranger:
        started = Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19]
        for ticks in (int(started), 1):
            changed = {**record(directory), "pid": stranger.pid, "started": ticks}
            (directory / "web" / "record.json").write_text(json.dumps(changed))
            assert status(stack).state is ServerState.STOPPED
            assert stack.down(["web"]) == []
        assert stranger.poll() is None
        stack.up(["web"])
        assert status(stack).pid != stranger.pid
        stranger.kill()


def test_a_killed_server_leaves_no_entry_in_the_table_of_processes(tmp_path: Path) -> None:
    for delay in range(100):  # some of them see the process between the signal and its end
        process = spawn(["sleep", "60"], directory=tmp_path, log=tmp_path / "log", marker=f"killed-{delay}")
        time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        time.sleep(delay * 1e-5)
        while is_alive(process):
            pass
        assert not psutil.pid_exists(process.pid)


def test_two_commands_at_once_start_one_server(directory: Path) -> None:
    first, second = command(directory, seconds=1), command(directory, seconds=1)
    assert (first.wait(TIMEOUT_S), second.wait(TIMEOUT_S)) == (0, 0)
    assert marked(record(directory)["marker"]) == [record(directory)["pid"]]


def test_ctrl_c_stops_what_the_command_has_started(directory: Path) -> None:
    starting = command(directory, seconds=60)
    eventually(lambda: (directory / "web" / "record.json").exists() and record(directory)["pid"] is not None)
    starting.send_signal(signal.SIGINT)
    starting.communicate(timeout=TIMEOUT_S)
    assert status(web_stack(directory)).state is ServerState.STOPPED


# Errors


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_that_names_the_holder(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(lambda: web_stack(directory).up(["web"], {"web": port}))
    assert error.condition is PORT_TAKEN
    assert f"port {port}" in error.message
    assert f"process {os.getpid()}" in error.message


def test_a_usual_port_that_is_taken_is_replaced_by_a_free_one(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        stack = web_stack(directory, port=taken.getsockname()[1])
        stack.up(["web"])
        assert status(stack).state is ServerState.RUNNING


def test_a_server_that_runs_is_not_moved_to_another_port(directory: Path) -> None:
    stack = web_stack(directory)
    stack.up(["web"])
    error = refused(lambda: stack.up(["web"], {"web": processes.free_ports(1)[0]}))
    assert error.condition is PORT_TAKEN
    assert "runs already" in error.message


def test_a_server_that_ends_at_its_start_shows_the_end_of_its_log(directory: Path) -> None:
    command = ["/bin/sh", "-c", "seq 1 100; echo there is no room >&2; exit 3"]
    error = refused(lambda: web_stack(directory, command=command).up(["web"]))
    assert error.condition is SERVER_FAILED
    assert "ended during its start" in error.message
    assert (error.quote or "").endswith("there is no room")
    assert "87" in (error.quote or "")
    assert "\n  2\n" not in (error.quote or "")
    assert str(directory / "web" / "server.log") in (error.hint or "")


def test_a_server_that_never_answers_is_stopped(directory: Path) -> None:
    stack = web_stack(directory, command=["sleep", "60"], start_seconds=1.0)
    error = refused(lambda: stack.up(["web"]))
    assert error.condition is SERVER_FAILED
    assert "did not answer within 1 s" in error.message
    assert status(stack).state is ServerState.STOPPED


def test_a_server_that_hangs_is_noticed_and_started_again(directory: Path) -> None:
    class Messages(Observer):
        texts: list[str] = []  # noqa: RUF012

        def message(self, text: str) -> None:
            self.texts.append(text)

    web_stack(directory).up(["web"])
    stack = Stack(directory, Messages(), {"web": Web(start_seconds=6.0, stop_seconds=1.0)})
    before = status(stack).pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    try:
        assert status(stack).state is ServerState.SILENT
        stack.up(["web"])
        assert status(stack).state is ServerState.RUNNING
        assert status(stack).pid != before
        assert any("did not answer" in text for text in Messages.texts)
    finally:
        if Path(f"/proc/{before}").exists():
            os.kill(before, signal.SIGCONT)


def test_too_little_memory_is_said_before_anything_starts(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 300_000_000)
    error = refused(lambda: web_stack(directory, memory=450_000_000).up(["web"]))
    assert error.condition is SERVER_FAILED
    assert "450 MB" in error.message
    assert "300 MB" in error.message
    assert not (directory / "web").exists()


def test_what_the_machine_lacks_is_said_before_anything_is_fetched(directory: Path) -> None:
    lacking = Web(lacking=UserError(JAVA_NOT_FOUND, "no Java"))
    assert refused(lambda: Stack(directory, servers={"web": lacking}).up(["web"])).condition is JAVA_NOT_FOUND
    assert not lacking.fetched
    with socket.create_server(("127.0.0.1", 0)) as taken:
        unlucky, port = Web(), taken.getsockname()[1]
        refused(lambda: Stack(directory, servers={"web": unlucky}).up(["web"], {"web": port}))
    assert not unlucky.fetched


def test_an_optional_server_that_cannot_run_here_is_left_out_unless_it_is_named(directory: Path) -> None:
    lacking = Web(lacking=UserError(JAVA_NOT_FOUND, "no Java"), optional=True)
    stack = Stack(directory, servers={"web": lacking})
    stack.up(["web"], without_optional=True)
    assert status(stack).state == "stopped"
    assert refused(lambda: stack.up(["web"])).condition is JAVA_NOT_FOUND


def test_the_answer_of_another_server_does_not_count(directory: Path, tmp_path: Path) -> None:
    other = web_stack(tmp_path / "other")
    other.up(["web"])
    try:
        stranger = Web(command=["false"])
        stranger.address = lambda site: status(other).address or ""  # type: ignore[method-assign]
        error = refused(lambda: Stack(directory, servers={"web": stranger}).up(["web"]))
        assert "ended during its start" in error.message
    finally:
        other.down(["web"])


def test_available_memory_is_known_here() -> None:
    assert 0 < memory.available() < 10**15


def test_a_directory_with_something_else_in_it_is_refused(directory: Path) -> None:
    (directory / "web").mkdir(parents=True)
    (directory / "web" / "page.html").write_text("mine")
    error = refused(lambda: web_stack(directory).up(["web"]))
    assert error.condition is STACK_DIRECTORY
    web_stack(directory).down(["web"], purge=True)
    assert (directory / "web" / "page.html").read_text() == "mine"


def test_a_directory_that_cannot_be_made_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(lambda: web_stack(tmp_path / "file" / "dev").up(["web"])).condition is STACK_DIRECTORY
    assert refused(lambda: web_stack(tmp_path / "file").up(["web"])).condition is STACK_DIRECTORY


def test_a_record_that_cannot_be_read_is_a_user_error(directory: Path) -> None:
    (directory / "web").mkdir(parents=True)
    (directory / "web" / "record.json").write_text("{")
    assert refused(lambda: web_stack(directory).status()).condition is STACK_DIRECTORY
