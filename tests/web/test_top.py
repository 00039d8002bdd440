"""`streamling top`, against admin APIs and against what is none."""

from __future__ import annotations

import http.server
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamling.cli.main import main
from support.admin_server import served

Handle = Callable[[Any], None]


@contextmanager
def server(handle: Handle) -> Iterator[str]:
    """The address of a server that answers GET like this."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handle(self)

        def log_message(self, *_: object) -> None:
            pass

    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        listening.server_close()


def top(*arguments: str) -> int:
    return main(["top", "--once", *arguments])


def answer(status: int, body: bytes, **headers: str) -> Handle:
    def handle(request: Any) -> None:
        request.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return handle


def flood(request: Any) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b"x" * (1 << 20))
    except OSError:
        pass


@pytest.mark.parametrize(
    ("handle", "message"),
    [
        (answer(200, b"<html>"), "not the admin API of a pipeline"),
        (answer(200, b'{"application_id": 5}'), "not the admin API of a pipeline"),
        (answer(404, b"{}"), "HTTP status 404"),
        (answer(302, b"", location="http://127.0.0.1:1/"), "HTTP status 302"),
        (answer(200, b"short", **{"content-length": "500"}), "no pipeline answers at"),
        (flood, "not the admin API of a pipeline"),
        (lambda request: request.connection.close(), "no pipeline answers at"),
    ],
)
def test_what_is_no_pipeline_is_named(handle: Handle, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with server(handle) as url:
        assert top("--url", url) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("url", ["http://[::1", "orders:3000", "", "ftp://host", "http://", "http://h:port"])
def test_what_is_no_address_is_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert top("--url", url) == 1
    shown = capsys.readouterr().err
    assert "is not a URL" in shown
    assert "hint: write it as http://host:port" in shown
    assert "Traceback" not in shown


def test_a_password_in_the_address_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    assert top("--url", "http://user:hunter2hunter2@127.0.0.1:1") == 1
    assert "hunter2" not in capsys.readouterr().err


@pytest.mark.parametrize("token", ["plain-token-of-a-pipeline", "gehéim-genug-für-alle-✓"])
def test_a_token_may_be_any_text_and_end_with_a_newline(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLING__ADMIN_API_TOKEN", f"{token}\n")
    with served(token=token) as api:
        assert top("--url", api.url) == 0
        assert top("--url", api.url, "--token", "another") == 1


def test_it_asks_where_the_pipeline_of_the_same_settings_listens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, address in (("::1", "[::1]"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.2", "127.0.0.2")):
        monkeypatch.setenv("STREAMLING__ADMIN_API_HOST", host)
        assert top("--port", "1") == 1
        assert f"http://{address}:1" in capsys.readouterr().err
    with served(host="::1") as api:
        monkeypatch.setenv("STREAMLING__ADMIN_API_HOST", "::1")
        assert top("--port", str(api.server.port)) == 0


@pytest.mark.parametrize("width", [20, 200])
@pytest.mark.parametrize("end", ["interrupt", "pipeline"])
def test_on_a_terminal_it_watches_until_the_pipeline_ends_or_ctrl_c(width: int, end: str) -> None:
    with served() as api:
        leader, follower = pty.openpty()
        os.system(f"stty cols {width} rows 10 < {os.ttyname(follower)}")
        command = [sys.executable, "-m", "streamling.cli.main", "top", "--url", api.url]
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        watching = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
        os.close(follower)
        shown = _read_until(leader, b"numbers")
        watching.send_signal(signal.SIGINT) if end == "interrupt" else api.server.stop()
        shown += _read_until(leader, None)
        assert watching.wait(20) == 0
        os.close(leader)
    assert b"Traceback" not in shown
    assert (b"does not answer any more" in shown) == (end == "pipeline")


def _read_until(leader: int, text: bytes | None) -> bytes:
    """What the terminal shows, until there is this text, or until the other side is closed."""
    shown = b""
    deadline = time.monotonic() + 60
    while text is None or text not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([leader], [], [], 0.2)[0]:
            try:
                shown += os.read(leader, 65536)
            except OSError:
                return shown
    return shown
