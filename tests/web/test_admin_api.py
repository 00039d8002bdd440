"""The admin API over HTTP: what it answers, to whom, and what clients cannot do to it."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack
from itertools import islice

import httpx
import pytest

from streamling.errors import DATA_ERROR, INTERNAL, BugError, InvalidPipeline, PermanentError, TransientError, UserError
from support.admin_server import Served, events, served, stream_events
from support.doubles import until

TOKEN = "a-token-of-32-characters-or-more"


def row(number: int, size: int = 0) -> str:
    return json.dumps({"id": number, "text": "x" * size})


def request(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"


# Health


def test_a_process_is_alive_from_the_start_and_ready_when_it_runs() -> None:
    with served(running=False) as api:
        assert [api.get(path).json() for path in ("/healthz", "/health")] == [{"alive": True}] * 2
        starting = api.get("/readyz")
        assert (starting.status_code, starting.json()["reason"]) == (503, "the pipeline is starting")
        api.progress.set_running({}, {}, bounded=False)
        assert (api.get("/readyz").status_code, api.get("/readyz").json()["ready"]) == (200, True)
        api.progress.set_stopping()
        assert api.get("/readyz").json()["reason"] == "the pipeline is stopping"


def test_a_pipeline_that_waits_too_long_is_not_ready_and_says_for_what() -> None:
    class Sink:
        trouble = "no answer from the database; password=verysecret1"

    with served() as api:
        api.server._view.health._deadline_s = 0.2  # type: ignore[misc]
        assert api.get("/readyz").status_code == 200
        api.progress.set_running({}, {"out": Sink()}, bounded=False)
        assert api.get("/readyz").status_code == 200
        time.sleep(0.3)
        answer = api.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["node"] == "out"
        assert answer.json()["reason"] == "no answer from the database; password=*****"
        assert answer.json()["seconds"] >= 0.2
        assert "verysecret1" not in api.get("/admin/progress").text


@pytest.mark.parametrize(
    ("error", "document"),
    [
        (
            PermanentError(DATA_ERROR, "row 7 has password=secret99", node="out"),
            {"node": "out", "message": "row 7 has password=*****", "internal": False, "retriable": False},
        ),
        (
            TransientError(DATA_ERROR, "no answer"),
            {"node": None, "message": "no answer", "internal": False, "retriable": True},
        ),
        (
            BugError(INTERNAL, "no such thing", node="a"),
            {"node": "a", "message": "no such thing", "internal": True, "retriable": False},
        ),
        (KeyError("x"), {"node": None, "message": "'x'", "internal": True, "retriable": False}),
        (
            InvalidPipeline([UserError(DATA_ERROR, "one", node="a"), UserError(DATA_ERROR, "two")]),
            {"node": "a", "message": "one; two", "internal": False, "retriable": False},
        ),
    ],
)
def test_the_first_fatal_error_is_served(error: Exception, document: object) -> None:
    with served() as api:
        healthy = api.get("/admin/error")
        assert (healthy.status_code, healthy.content) == (204, b"")
        api.progress.set_failure(error)
        api.progress.set_failure(ValueError("a later one"))
        assert api.get("/admin/error").json() == document
        assert api.get("/readyz").status_code == 503


# Access


def test_without_the_token_only_the_probes_answer_and_they_give_no_details() -> None:
    with served(token=TOKEN) as api:
        api.progress.set_failure(PermanentError(DATA_ERROR, "row 7 of Mr. Smith is wrong"))
        assert api.get("/healthz").status_code == 200
        assert api.get("/readyz").json() == {
            "ready": False,
            "phase": "running",
            "node": None,
            "reason": None,
            "seconds": None,
        }
        for path in ("/admin/error", "/admin/live-data", "/admin/pipeline", "/metrics", "/openapi.json", "/nothing"):
            for wrong in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xfc"):
                answer = api.client.get(path, headers={"authorization": wrong.encode("latin-1")})  # type: ignore[dict-item]
                assert answer.status_code == 401, (path, wrong)
                assert answer.headers["www-authenticate"] == "Bearer"
        assert "Mr. Smith" in api.get("/admin/error", authorization=f"Bearer {TOKEN}").text
        assert "Mr. Smith" in api.get("/readyz", authorization=f"bearer {TOKEN}").text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:1"}, 200),
        ({"host": "127.0.0.2"}, 200),
        ({"host": "[::1]:3000"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://localhost:8000"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_pages_of_other_hosts_cannot_use_the_browser_to_reach_it(headers: dict[str, str], status: int) -> None:
    with served() as api:
        assert api.get("/admin/error", **headers).status_code == (204 if status == 200 else status)


def test_on_other_addresses_any_name_is_served_with_the_token() -> None:
    with served(host="0.0.0.0", token=TOKEN) as api:
        assert api.get("/admin/error", host="orders.example", authorization=f"Bearer {TOKEN}").status_code == 204


def test_other_paths_and_methods_are_refused() -> None:
    with served() as api:
        assert (api.get("/nothing").status_code, api.get("/nothing").json()) == (404, {"error": "Not Found"})
        refused = api.client.post("/admin/error", content=b"x" * 100_000)
        assert (refused.status_code, {*refused.headers["allow"].split(", ")}) == (405, {"GET", "HEAD"})
        assert api.client.head("/admin/live-data").status_code == 200


# Live data


def test_a_client_gets_the_stored_rows_then_live_ones_of_the_nodes_it_names() -> None:
    with served() as api:
        assert api.samples is not None
        api.samples.set_nodes(["numbers", "other"])
        api.samples.add("numbers", [row(1), row(2)])
        api.samples.add("other", [row(9)])
        with (
            api.client.stream("GET", "/admin/live-data") as all_,
            api.client.stream("GET", "/admin/live-data?topology_node_keys=%20numbers%20,,nobody") as some,
        ):
            assert all_.headers["content-type"].startswith("text/event-stream")
            first, lines = events(all_.iter_lines(), 3), some.iter_lines()
            assert first == [
                {"topology_node_key": node, "data": {"id": number, "text": ""}}
                for node, number in (("numbers", 2), ("numbers", 1), ("other", 9))
            ]
            assert [event["data"]["id"] for event in events(lines, 2)] == [2, 1]
            api.samples.add("other", [row(8)])
            api.samples.add("numbers", [row(3)])
            assert [event["data"]["id"] for event in events(lines, 1)] == [3]


def test_without_sampling_there_is_no_live_data() -> None:
    with served(live_data_inspect_enabled=False, admin_api_enabled=True) as api:
        answer = api.get("/admin/live-data")
        assert answer.status_code == 404
        assert "live_data_inspect_enabled" in answer.json()["error"]


def test_one_of_many_clients_reads_nothing_and_another_leaves_and_the_rest_get_every_row() -> None:
    """Rows of 60 kB: the buffers of the stuck connection are full soon."""
    with served(live_data_inspect={"records_per_topology_node": 5, "refresh_in_secs": 1}) as api, ExitStack() as stack:
        assert api.samples is not None
        api.samples._refresh_s = 0.0  # credits come back at once
        got: list[list[int]] = [[] for _ in range(20)]
        streams = [stack.enter_context(api.client.stream("GET", "/admin/live-data")) for _ in got]

        def read(stream: httpx.Response, into: list[int]) -> None:
            for event in islice(stream_events(stream.iter_lines()), 400):
                into.append(event["data"]["id"])

        threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in zip(streams, got, strict=True)]
        for thread in threads:
            thread.start()
        stuck = api.connect(request("/admin/live-data"), receive_buffer=4096)
        leaving = api.connect(request("/admin/live-data"))
        leaving.recv(100)
        until(lambda: len(api.samples._subscriptions) == 22)  # type: ignore[union-attr]
        longest = 0.0
        for number in range(400):
            began = time.monotonic()
            api.samples.add("numbers", [row(number, 60_000)])
            longest = max(longest, time.monotonic() - began)
            if number == 3:
                leaving.recv(1000)  # in the middle of an event
                leaving.close()
            # as fast as the slowest of those that read
            until(lambda: min(map(len, got)) >= number - 2, 20)  # noqa: B023
        for thread in threads:
            thread.join(20)
        assert all(numbers == list(range(400)) for numbers in got)
        until(lambda: len(api.samples._subscriptions) <= 20)  # type: ignore[union-attr]
        assert longest < 1
        _read_all(stuck)  # it ends
        assert api.get("/healthz").status_code == 200


def test_streams_end_with_the_run_also_those_that_nobody_reads() -> None:
    with ExitStack() as stack:
        api = stack.enter_context(served())
        assert api.samples is not None
        reading = stack.enter_context(api.client.stream("GET", "/admin/live-data"))
        stuck = api.connect(request("/admin/live-data"), receive_buffer=4096)
        until(lambda: len(api.samples._subscriptions) == 2)  # type: ignore[union-attr]
        api.samples.add("numbers", [row(number, 60_000) for number in range(15)])
        began = time.monotonic()
        api.server.stop()
        assert time.monotonic() - began < 1.5
        assert len(events(reading.iter_lines(), 16)) == 15  # and a proper end
        stuck.close()


# Hostile clients


def test_requests_that_are_too_long_are_refused() -> None:
    with served() as api:
        for text in (
            f"GET /admin/live-data?topology_node_keys={'a,' * 100_000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {'a' * 200_000}\r\n\r\n",
            "\x00\xff nonsense\r\n\r\n",
        ):
            client = api.connect(text)
            answer = _read_all(client)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400"), answer[:100]
        assert api.get("/healthz").status_code == 200


def test_connections_without_a_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.web.server._REQUEST_S", 0.3)
    with served() as api:
        silent, slow = api.connect(""), api.connect("GET /healthz HT")
        second = api.connect(request("/healthz") + "GET /heal")
        assert _read_all(silent) == b""
        assert _read_all(slow) == b""
        assert b"alive" in _read_all(second)


def test_more_connections_than_it_serves_are_closed_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.web.server._MOST_CONNECTIONS", 20)
    with served() as api:
        clients = [api.connect("GET /healthz HTTP/1.1\r\nHost: localhost\r\n") for _ in range(40)]
        _ = [client.close() for client in clients]
        until(lambda: _is_answered(api), 10)


def _is_answered(api: Served) -> bool:
    try:
        return api.get("/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def _read_all(client: socket.socket) -> bytes:
    found = b""
    try:
        while data := client.recv(65536):
            found += data
    except ConnectionError:
        pass
    return found


# The server


def test_a_port_that_is_taken_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    from streamling.web.server import admin_api

    with served() as api:
        settings = api.server._settings.model_copy(update={"admin_api_port": api.server.port})
        with admin_api(api.server._view, settings) as second:
            assert second is None
    assert "cannot listen on 127.0.0.1:" in caplog.text


def test_a_server_without_clients_stops_at_once() -> None:
    with served() as api:
        began = time.monotonic()
        api.server.stop()
        assert time.monotonic() - began < 0.5
        assert not api.server._thread.is_alive()
