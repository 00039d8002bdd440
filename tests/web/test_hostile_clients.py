"""What clients of the admin API cannot do to it: hold connections, memory, or the log of the pipeline."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from contextlib import ExitStack

import pytest

from streamling.web.view import RunView
from support.admin_server import Served, events, read_all, request, served
from support.doubles import until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.web.connection.PATIENCE_S", 0.4)


@pytest.fixture
def twenty_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.web.connection.MOST_CONNECTIONS", 20)


def is_open(client: socket.socket) -> bool:
    """Whether the server has not closed the connection."""
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def unsent(api: Served) -> int:
    """The bytes that the server holds for clients that do not read."""
    return sum(one.transport.get_write_buffer_size() for one in list(api.server._state.connections))


# Requests


def test_requests_that_are_too_long_are_refused() -> None:
    with served() as api:
        for text in (
            f"GET /admin/live-data?topology_node_keys={'a,' * 100_000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {'a' * 200_000}\r\n\r\n",
            "\x00\xff nonsense\r\n\r\n",
        ):
            answer = read_all(api.connect(text))
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400"), answer[:100]
        assert api.get("/healthz").status_code == 200


def test_requests_on_one_connection_are_answered_in_order() -> None:
    with served() as api:
        paths = ["/healthz", "/admin/error", "/nothing", "/admin/epochs"] * 50
        last = request("/readyz").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
        answer = read_all(api.connect("".join(map(request, paths)) + last))
        statuses = re.findall(rb"HTTP/1\.1 (\d+)", answer)
        assert statuses == [b"200", b"204", b"404", b"200"] * 50 + [b"200"]


def test_a_client_that_has_sent_everything_and_says_so_gets_its_answer() -> None:
    with served() as api:
        for path in ("/healthz", "/admin/pipeline"):
            client = api.connect(request(path))
            client.shutdown(socket.SHUT_WR)
            assert read_all(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/healthz", "/admin/live-data"])
def test_a_body_that_is_not_valid_leaves_nothing_in_the_log(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with served() as api:
        header = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        for text in (header, header.replace("POST", "GET")):
            client = api.connect(text)
            assert client.recv(20).startswith(b"HTTP/1.1 ")
            client.sendall(b"zz not a length\r\n")
            read_all(client)  # it ends
        assert api.get("/healthz").status_code == 200
    assert caplog.text == ""


@pytest.mark.parametrize("method", ["OPTIONS", "DELETE", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(method: str) -> None:
    with served() as api:
        assert api.client.request(method, "/admin/state").status_code == 405
        assert "access-control-allow-origin" not in api.client.request(method, "/admin/live-data").headers


# Connections


@pytest.mark.usefixtures("impatient")
def test_connections_without_a_request_are_closed() -> None:
    with served() as api:
        silent, slow = api.connect(""), api.connect("GET /healthz HT")
        second = api.connect(request("/healthz") + "GET /heal")
        assert read_all(silent) == b""
        assert read_all(slow) == b""
        assert b"alive" in read_all(second)


@pytest.mark.usefixtures("impatient")
def test_a_request_that_never_ends_is_closed_although_something_arrives_all_the_time() -> None:
    with served() as api:
        drip, upload = api.connect("GET /healthz HTTP/1.1\r\n"), api.connect(
            "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
        )  # fmt: skip
        deadline = time.monotonic() + 10
        left = {drip: b"X: y\r\n", upload: b"x" * 1000}
        while left:
            assert time.monotonic() < deadline
            for client, data in list(left.items()):
                try:
                    client.sendall(data)
                except OSError:
                    del left[client]
            time.sleep(0.05)


@pytest.mark.usefixtures("impatient")
def test_a_client_that_does_not_read_a_long_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunView, "metrics", lambda view: "x" * 10_000_000)
    with served() as api:
        clients = [api.connect(request("/metrics"), receive_buffer=4096) for _ in range(5)]
        until(lambda: unsent(api) > 10_000_000)
        until(lambda: not api.server._state.connections, 10)
        assert len(api.get("/metrics").content) == 10_000_000  # who reads has all of it
        assert all(len(read_all(client)) < 10_000_000 for client in clients)


@pytest.mark.usefixtures("impatient")
def test_a_stream_that_is_read_is_kept_and_one_that_is_not_read_is_ended() -> None:
    with served(live_data_inspect={"records_per_topology_node": 200}) as api, ExitStack() as stack:
        assert api.samples is not None
        api.samples.add("numbers", [json.dumps({"id": n, "text": "x" * 60_000}) for n in range(200)])
        stuck = api.connect(request("/admin/live-data"), receive_buffer=4096)
        until(lambda: len(api.server._state.connections) == 1)
        until(lambda: not api.server._state.connections, 10)
        reading = stack.enter_context(api.client.stream("GET", "/admin/live-data"))
        lines = reading.iter_lines()
        assert len(events(lines, 200)) == 200
        time.sleep(1)
        api.samples._refresh_s = 0.0
        api.samples.add("numbers", ['{"id":7}'])
        assert [event["data"] for event in events(lines, 1)] == [{"id": 7}]
        read_all(stuck)


@pytest.mark.parametrize("size", [10_000, 25_000])
def test_a_client_that_reads_slowly_is_kept(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 MB of samples; the kernel takes as much at once as this client reads in several times its patience."""
    monkeypatch.setattr("streamling.web.connection.PATIENCE_S", 1.2)
    with served(live_data_inspect={"records_per_topology_node": 400}) as api:
        assert api.samples is not None
        api.samples.add("numbers", [json.dumps({"id": n, "text": "x" * 60_000}) for n in range(400)])
        client = api.connect(request("/admin/live-data"))
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            assert client.recv(size)
            assert api.server._state.connections
            time.sleep(0.02)
        until(lambda: not api.server._state.connections, 10)  # it reads no more


def test_rows_for_clients_that_do_not_read_are_not_copied_for_each_of_them() -> None:
    """12 MB of samples and 30 clients."""
    with served(live_data_inspect={"records_per_topology_node": 200}) as api:
        assert api.samples is not None
        api.samples.add("numbers", [json.dumps({"id": n, "text": "x" * 60_000}) for n in range(200)])
        clients = [api.connect(request("/admin/live-data"), receive_buffer=4096) for _ in range(30)]
        until(lambda: len(api.samples._subscriptions) == 30)  # type: ignore[union-attr]
        until(lambda: unsent(api) > 0)
        time.sleep(0.3)
        assert unsent(api) < 30 * (200 << 10)
        _ = [client.close() for client in clients]


@pytest.mark.usefixtures("twenty_connections")
def test_idle_connections_make_room_for_those_with_a_request() -> None:
    with served() as api:
        clients = []
        for _ in range(60):
            clients.append(api.connect("GET /healthz HTTP/1.1\r\nHost: localhost\r\n"))
            assert len(api.server._state.connections) <= 21
        until(lambda: sum(map(is_open, clients)) <= 20)
        assert [is_open(client) for client in clients] == [False] * 40 + [True] * 20  # the oldest were closed
        began = time.monotonic()
        for _ in range(20):
            assert api.get("/healthz").status_code == 200
        assert time.monotonic() - began < 2
        _ = [client.close() for client in clients]


@pytest.mark.usefixtures("twenty_connections")
def test_if_all_connections_are_in_use_others_are_refused_and_those_go_on() -> None:
    with served() as api:
        assert api.samples is not None
        streams = [api.connect(request("/admin/live-data")) for _ in range(20)]
        until(lambda: len(api.samples._subscriptions) == 20)  # type: ignore[union-attr]
        for _ in range(30):
            answer = read_all(api.connect(""))
            assert answer.startswith(b"HTTP/1.1 503 "), answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"error": "too many connections"}
        assert len(api.server._state.connections) == 20
        api.samples.add("numbers", ['{"id":1}'])
        for client in streams:
            until(lambda client=client: b'{"id":1}' in client.recv(65536))
        streams.pop().close()
        until(lambda: len(api.server._state.connections) < 20)
        assert api.get("/healthz").status_code == 200
        _ = [client.close() for client in streams]


def test_a_thousand_connections_at_once_leave_a_server_that_answers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    with served() as api, ExitStack() as stack:
        for number in range(1000):
            text = request("/admin/live-data") if number % 4 == 0 else "GET /healthz HTTP/1.1\r\n"
            client = stack.enter_context(socket.create_connection(("127.0.0.1", api.server.port), timeout=20))
            client.sendall(text.encode())
            if number % 100 == 0:
                began = time.monotonic()
                assert api.get("/healthz").status_code == 200
                assert time.monotonic() - began < 8
        assert len(api.server._state.connections) <= 513
        monkeypatch.setattr("streamling.web.server._JOIN_S", 20.0)
        began = time.monotonic()
        api.server.stop()
        assert time.monotonic() - began < 10
    assert "rror" not in caplog.text
