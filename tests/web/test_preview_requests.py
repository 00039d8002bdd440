"""What clients can do to the preview server. The processes that it starts are small programs instead of previews."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn

from streamling.errors import INVALID_VALUE, UserError
from streamling.spec.pipeline import PipelineText
from streamling.spec.settings import Settings
from streamling.web.preview import MAX_BODY, PreviewServer, Tools
from support.doubles import until

PIPELINE = "sources: {numbers: {type: generator, rows: 1, primary_key: id}}"
START = 'import sys, json, time\nsys.stdin.read()\nprint(json.dumps({"event": "start", "nodes": []}), flush=True)\n'
ROW = """print('{"topology_node_key":"n","data":{"id":1}}', flush=True)\n"""
ENDLESS = f"{START}{ROW}time.sleep(600)"


@dataclass
class Running:
    """A server in a thread, and the texts that it has checked."""

    url: str
    server: PreviewServer
    checked: list[str] = field(default_factory=list)

    def post(self, path: str, text: str | bytes = PIPELINE, **more: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", content=text, timeout=60, **more)

    @contextmanager
    def stream(self, text: str = PIPELINE) -> Iterator[httpx.Response]:
        with httpx.stream("POST", f"{self.url}/preview", content=text, timeout=60) as response:
            yield response


def children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if "events" in words_of(p)]


def words_of(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):  # it has just ended
        return process.cmdline()
    return []


@contextmanager
def serving(program: str = ENDLESS, check: Any = lambda text: None) -> Iterator[Running]:
    checked: list[str] = []

    def checking(text: PipelineText) -> None:
        checked.append(text.text)
        check(text)

    server = PreviewServer(Settings(), Tools(checking, str, [sys.executable, "-c", program]))
    options: dict[str, Any] = {"http": "h11", "lifespan": "off", "log_config": None, "timeout_graceful_shutdown": 1}
    web = uvicorn.Server(uvicorn.Config(server.app(), **options))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        async def serve() -> None:
            await web.serve([listener])
            await server.close()

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", server, checked)
        finally:
            web.should_exit = True
            thread.join(20)
    assert not thread.is_alive()
    until(lambda: not children(), 20)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.nip.io"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_a_web_page_cannot_run_a_pipeline_through_the_browser(headers: dict[str, str]) -> None:
    """A browser sends `text/plain` to other sites without asking them first."""
    with serving() as running:
        for path in ("/preview", "/rewrite"):
            refused = running.post(path, headers={"content-type": "text/plain", **headers})
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers
        assert running.checked == []


def test_a_page_of_this_machine_and_a_program_may_use_it() -> None:
    with serving() as running:
        for headers in ({"origin": "http://localhost:8080", "sec-fetch-site": "same-site"}, {}):
            assert running.post("/rewrite", headers=headers).status_code == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_sent() -> None:
    with serving() as running, socket.create_connection(running.url.removeprefix("http://").split(":")) as client:
        client.sendall(b"POST /preview HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\nsources:")
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
    with serving() as running:

        def pieces() -> Iterator[bytes]:
            for _ in range(MAX_BODY // 1000 + 2):
                yield b"#" * 1000

        assert httpx.post(f"{running.url}/preview", content=pieces(), timeout=30).status_code == 413


@pytest.mark.parametrize("seconds", ["-1", "soon", "1.5", "nan", "9" * 12, "%31%00"])
def test_a_wrong_duration_is_refused(seconds: str) -> None:
    with serving() as running:
        refused = running.post(f"/preview?duration_seconds={seconds}")
        assert (refused.status_code, running.checked) == (422, [])
        assert "whole number of seconds" in refused.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\xff\xfe", "not UTF-8"),
        ("", "empty"),
        ("[]", "must be a map"),
        ('sources: {a: {type: generator, columns: {x: "\\ud800"}}}', "surrogate"),
    ],
)
def test_what_is_not_a_pipeline_is_refused(text: str | bytes, reason: str) -> None:
    with serving() as running:
        refused = running.post("/preview", text)
        assert refused.status_code == 422
        assert reason in refused.text


def test_a_wrapped_pipeline_is_understood() -> None:
    with serving() as running, running.stream(f"definition:\n  {PIPELINE}") as response:
        assert response.status_code == 200
        assert "preview_blackhole_numbers" in running.checked[0]


def test_an_invalid_pipeline_does_not_end_the_preview_that_runs() -> None:
    def refuse(text: PipelineText) -> None:
        if "wrong" in text.text:
            raise UserError(INVALID_VALUE, "it is wrong")

    with serving(check=refuse) as running, running.stream() as response:
        lines = response.iter_lines()
        next(line for line in lines if line.startswith("data:"))
        assert running.post("/preview", PIPELINE.replace("numbers", "wrong")).text == "it is wrong"
        assert len(children()) == 1


def test_a_defect_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    with serving(check=lambda text: 1 / 0) as running:
        answer = running.post("/preview")
        assert (answer.status_code, answer.text) == (500, "internal error: ZeroDivisionError")
    assert "POST /preview failed: ZeroDivisionError" in caplog.text


def test_of_many_requests_the_newest_is_served() -> None:
    slow = f"import time\ntime.sleep(0.5)\n{ENDLESS}"
    with serving(slow) as running:
        answers: list[int] = []

        def post() -> None:
            with running.stream() as response:
                answers.append(response.status_code)
                for _ in response.iter_lines():
                    pass

        threads = [threading.Thread(target=post) for _ in range(50)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) == 50, 30)
        assert set(answers) <= {200, 409}
        until(lambda: len(children()) == 1, 10)
        children()[0].terminate()
        for thread in threads:
            thread.join(20)


def test_a_client_that_leaves_before_the_first_row_ends_its_preview() -> None:
    slow = f"import time\ntime.sleep(1)\n{START}time.sleep(600)"
    with serving(slow) as running:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{running.url}/preview", content=PIPELINE, timeout=0.5)
        until(lambda: bool(children()), 10)
        until(lambda: not children(), 10)


def test_a_client_that_does_not_read_costs_little_memory() -> None:
    """The oldest rows make room, and the process is never held up."""
    fast = (
        START
        + "for n in range(3000):\n"
        + "    print({!r}, flush=True)\n".format('{"topology_node_key":"n","data":"%s"}' % ("x" * 1000))
    )
    with serving(fast) as running, socket.create_connection(running.url.removeprefix("http://").split(":")) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"POST /preview HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(PIPELINE)}\r\n\r\n"
        client.sendall(head.encode() + PIPELINE.encode())
        until(lambda: running.server._current is not None, 10)
        until(lambda: not children(), 20)
        assert running.server._current._events.qsize() <= 1000  # type: ignore[union-attr]


def test_a_node_that_fails_is_an_event() -> None:
    program = START + """print('{"event":"problem","node":"n","message":"it failed"}', flush=True)\n""" + ROW
    with serving(program) as running:
        lines = [line for line in running.post("/preview").text.splitlines() if line]
    assert lines == [
        ": connected",
        "event: problem",
        'data: {"node": "n", "message": "it failed"}',
        'data: {"topology_node_key":"n","data":{"id":1}}',
        "event: end",
        'data: {"reason": "preview ended"}',
    ]


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("import sys; sys.exit('no way')", 502, "the preview did not start: no way"),
        ("import sys; sys.stdin.read(); print('noise', flush=True)", 502, "the preview did not start: exit code 0"),
    ],
)
def test_a_process_that_does_not_begin_is_reported(program: str, status: int, text: str) -> None:
    with serving(program) as running:
        answer = running.post("/preview", PIPELINE + "\n" * 200_000)
        assert (answer.status_code, answer.text) == (status, text)


def test_lines_that_are_no_events_are_skipped() -> None:
    noise = "print('noise'); print('[1]'); print('x' * 3_000_000)"
    odd = """print('{"event": {}}'); print('{"event": "problem"}')"""
    with serving(f"{START}{noise}\n{odd}\n{ROW}") as running:
        data = [line for line in running.post("/preview").text.splitlines() if line.startswith("data:")]
    assert [json.loads(line[5:]) for line in data] == [
        {"node": None, "message": None},
        {"topology_node_key": "n", "data": {"id": 1}},
        {"reason": "preview ended"},
    ]


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    server = PreviewServer(Settings(), Tools(lambda text: None, str, [str(tmp_path / "absent")]))

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(server.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/preview", content=PIPELINE)

    began = time.monotonic()
    answer = asyncio.run(post())
    assert answer.status_code == 500
    assert "could not be started" in answer.text
    assert time.monotonic() - began < 10
