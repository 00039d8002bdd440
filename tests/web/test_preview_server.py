"""The preview server with the processes that it starts."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from streamling.web.preview import MAX_BODY
from support.harness import Child, Workspace, relatives

PIPELINE = """\
sources:
  numbers: {type: generator, rows: 20, primary_key: id, columns: {id: id, name: "concat('n', id)"}}
transforms:
  even: {type: sql, primary_key: id, sql: SELECT id FROM numbers WHERE id % 2 = 0}
sinks:
  table: {type: postgres, from: even, table: t, schema: s, primary_key: id}
"""
ENDLESS = "sources: {ticks: {type: generator, rate: 1, primary_key: id}}"
END = ("end", {"reason": "preview ended"})


class Server:
    def __init__(self, child: Child) -> None:
        self.child = child
        child.until(lambda: "listens on" in child.stderr, "the server listens")
        found = re.search(r"listens on (http://\S+)", child.stderr)
        assert found
        self.url = found[1]

    def post(self, path: str, text: str | bytes, **more: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", content=text, timeout=60, **more)

    def previews(self) -> list[psutil.Process]:
        """The processes of previews."""
        return [p for p in relatives(self.child.marker) if "events" in _arguments(p)]

    def preview(self) -> psutil.Process:
        """The process of the only preview. One that it starts looks like it for a moment."""
        self.until(lambda: len(self.previews()) == 1, "one preview")
        return self.previews()[0]

    def until(self, condition: Callable[[], object], what: str) -> None:
        self.child.until(condition, what)


def _arguments(process: psutil.Process) -> list[str]:
    try:
        arguments: list[str] = process.cmdline()
        return arguments
    except psutil.Error:
        return []


@pytest.fixture
def server(place: Workspace) -> Iterator[Server]:
    child = place.start("--preview-server", "--preview-server-port", "0")
    try:
        yield Server(child)
    finally:
        child.signal(signal.SIGTERM)
        child.wait().succeeded()


@contextmanager
def stream(server: Server, text: str, seconds: int = 60) -> Iterator[httpx.Response]:
    url = f"{server.url}/preview?duration_seconds={seconds}"
    with httpx.stream("POST", url, content=text, timeout=120) as response:
        yield response


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
            name = ""


def test_errors_do_not_quote_files_of_the_server(place: Workspace, server: Server) -> None:
    place.write("sources: {of_the_server: {}}")
    for path in ("/rewrite", "/preview"):
        for text in ("", "sources: {", PIPELINE.replace("SELECT id", "SELECT nope").replace("type: sql", "type: sq")):
            answer = server.post(path, text)
            assert "of_the_server" not in answer.text


def test_requests_are_checked_before_anything_is_started(server: Server) -> None:
    rewritten = server.post("/rewrite", PIPELINE)
    assert (rewritten.status_code, rewritten.headers["content-type"]) == (200, "application/yaml")
    assert "type: blackhole\n    from: even" in rewritten.text
    wrong = server.post("/rewrite", "sources: {")
    assert (wrong.status_code, wrong.headers["content-type"]) == (422, "text/plain; charset=utf-8")
    assert "INVALID_YAML" in wrong.text
    invalid = server.post("/preview", PIPELINE.replace("SELECT id", "SELECT nope"))
    assert invalid.status_code == 422
    assert "No field named nope" in invalid.text
    assert server.post("/preview", b"\xff").status_code == 422
    assert server.post("/preview", "#" * (MAX_BODY + 1)).status_code == 413
    assert server.post("/preview?duration_seconds=soon", PIPELINE).status_code == 422
    assert httpx.get(f"{server.url}/preview").status_code == 405
    assert server.post("/rewrite", PIPELINE, headers={"host": "evil.example"}).status_code == 403
    assert server.previews() == []


@pytest.mark.spark
def test_rows_of_all_nodes_are_sent_and_then_the_end(server: Server) -> None:
    with stream(server, PIPELINE) as response:
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        got = list(events(response))
    assert got[-1] == END
    rows = [data for name, data in got if not name]
    assert {row["topology_node_key"] for row in rows} == {"numbers", "even"}
    assert {"topology_node_key": "even", "data": {"id": 0, "_gs_op": "i"}} in rows
    server.until(lambda: not server.previews(), "the end of the process")


def test_a_new_preview_ends_the_last_and_a_client_that_goes_ends_its_own(server: Server) -> None:
    with stream(server, ENDLESS) as first:
        process = server.preview()
        with stream(server, ENDLESS) as second:
            assert second.status_code == 200
            assert list(events(first))[-1] == END
            assert not process.is_running()
            server.preview()
        server.until(lambda: not server.previews(), "the end of the preview")


def test_a_process_that_dies_ends_its_preview(server: Server) -> None:
    with stream(server, ENDLESS) as response:
        process = server.preview()
        process.kill()
        *_, failure, end = events(response)
        assert failure[0] == "failure"
        assert end == END
    # The next one works.
    with stream(server, ENDLESS, seconds=1) as response:
        began = time.monotonic()
        assert list(events(response))[-1] == END
        assert time.monotonic() - began < 60


def test_the_end_of_the_server_ends_its_preview(place: Workspace) -> None:
    server = Server(place.start("--preview-server", "--preview-server-port", "0"))
    with stream(server, ENDLESS):
        server.child.signal(signal.SIGTERM)
        server.child.wait().succeeded()  # and nothing is left behind


def test_a_server_that_is_killed_leaves_no_preview_behind(place: Workspace) -> None:
    server = Server(place.start("--preview-server", "--preview-server-port", "0"))
    with stream(server, ENDLESS):
        assert server.previews()
        server.child.signal(signal.SIGKILL)
        server.child.process.wait(10)
        server.child.assert_alone(within=30)


@pytest.mark.spark
def test_the_time_counts_from_the_moment_when_rows_can_be_read(server: Server) -> None:
    with stream(server, ENDLESS, seconds=3) as response:
        got = list(events(response))
    assert got[-1] == END
    assert len(got) > 1


@pytest.mark.spark
def test_python_modules_are_beside_the_server(place: Workspace, server: Server) -> None:
    (place.directory / "doubling.py").write_text("def double(row):\n    return {**row, 'id': row['id'] * 2}\n")
    doubled = "  doubled: {type: python, from: even, primary_key: id, function: doubling:double}\nsinks:"
    text = PIPELINE.replace("from: even", "from: doubled").replace("sinks:", doubled)
    with stream(server, text) as response:
        assert response.status_code == 200
        rows = [data for name, data in events(response) if not name]
    assert {"id": 4, "_gs_op": "i"} in [row["data"] for row in rows if row["topology_node_key"] == "doubled"]


def test_other_machines_need_a_token(place: Workspace) -> None:
    host: dict[str, object] = {"ADMIN_API_HOST": "0.0.0.0"}
    refused = place.start("--preview-server", "--preview-server-port", "0", **host).wait().failed()
    assert "other machines could run pipelines" in refused.stderr
    assert "STREAMLING__ADMIN_API_TOKEN" in refused.stderr
    insecure = place.start("--preview-server", "--preview-server-port", "0", ADMIN_API_INSECURE="true", **host)
    assert "STREAMLING__ADMIN_API_TOKEN" in insecure.wait().failed().stderr, "it is about rows, not about code"
    child = place.start("--preview-server", "--preview-server-port", "0", ADMIN_API_TOKEN="secret-token", **host)
    server = Server(child)
    server.url = server.url.replace("0.0.0.0", "127.0.0.1")
    assert server.post("/rewrite", PIPELINE).status_code == 401
    token = {"authorization": "Bearer secret-token"}
    assert server.post("/rewrite", PIPELINE, headers=token).status_code == 200
    child.signal(signal.SIGTERM)
    child.wait().succeeded()
