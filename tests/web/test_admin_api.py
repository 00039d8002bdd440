"""The admin API over HTTP: what it answers, to whom, and what clients cannot do to it."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import tracemalloc
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import httpx
import pytest

from streamling.errors import DATA_ERROR, INTERNAL, BugError, InvalidPipeline, PermanentError, TransientError, UserError
from streamling.letters.files import LetterFiles
from streamling.letters.letter import Letter
from streamling.spec.pipeline.options import FileLetters
from streamling.spec.settings.environment_only import RuntimeLimits
from streamling.web.documents import State
from streamling.web.view import RunView
from support.admin_server import events, read_all, request, served, stream_events
from support.doubles import plan_of, until

TOKEN = "a-token-of-32-characters-or-more"


def row(number: int, size: int = 0) -> str:
    return json.dumps({"id": number, "text": "x" * size})


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


@pytest.mark.parametrize("token", [f"{TOKEN}\n", f"  {TOKEN} ", "gehéim-genug-für-alle-✓"])
def test_a_token_may_come_from_a_file_and_need_not_be_ascii(token: str) -> None:
    with served(host="0.0.0.0", token=token) as api:
        header = f"Bearer {token.strip()}".encode()
        assert api.client.get("/admin/error", headers={b"authorization": header}).status_code == 204
        assert api.client.get("/admin/error", headers={b"authorization": b"Bearer"}).status_code == 401


def test_a_token_of_spaces_is_none() -> None:
    limits = RuntimeLimits.model_validate({"admin_api_host": "0.0.0.0", "admin_api_token": " \n"})
    assert limits.admin_api_is_open


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


# Documents


def test_what_is_no_text_and_no_number_of_json_does_not_break_a_document() -> None:
    with served() as api:
        journal = api.server._view.execution.journal
        assert journal is not None
        values = {"nan": float("nan"), "wide": 2**100, "file": "a\udcff.json", "nul": "a\x00b"}
        journal._store.put({"files\udcff": values})  # the name of a file need not be UTF-8
        found = json.loads(api.get("/admin/state").content, parse_constant=lambda text: pytest.fail(text))
        assert [*found["positions"].values()] == [{"nan": None, "wide": 2**100, "file": "a?.json", "nul": "a\x00b"}]
        api.progress.set_failure(PermanentError(DATA_ERROR, "cannot read a\udcff.json"))
        assert api.get("/admin/error").json()["message"] == "cannot read a?.json"
        assert api.get("/readyz").json()["reason"] == "cannot read a?.json"


def test_positions_of_a_source_whose_name_sounds_secret_are_shown() -> None:
    with served() as api:
        journal = api.server._view.execution.journal
        assert journal is not None
        journal._store.put({"token_transfers:topic:0": {"offset": 7, "api_key": "abcdef1"}})
        positions = api.get("/admin/state").json()["positions"]
        assert positions == {"token_transfers:topic:0": {"offset": 7, "api_key": "*****"}}


def test_a_database_that_does_not_answer_holds_up_only_the_requests_that_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    answer = threading.Event()

    def hang(view: RunView) -> State:
        asked.append(threading.current_thread())
        answer.wait(20)
        return State("app", {})

    monkeypatch.setattr(RunView, "state", hang)
    monkeypatch.setattr("streamling.web.answers._PATIENCE_S", 0.5)
    with served() as api:
        waiting = [api.connect(request("/admin/state")) for _ in range(50)]
        until(lambda: asked)
        began = time.monotonic()
        for path in ("/healthz", "/readyz", "/metrics", "/admin/pipeline", "/admin/dlq"):
            assert api.get(path).status_code == 200, path
        assert time.monotonic() - began < 2
        assert all(b"503 Service Unavailable" in client.recv(1000) for client in waiting)
        (thread,) = asked  # for all of them
        assert thread.daemon  # it does not keep a process from ending
        answer.set()
        until(lambda: not thread.is_alive())
        assert api.get("/admin/state").status_code == 200


def test_the_newest_dead_letters_are_listed_and_their_payloads_are_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in range(3):
        lines = (
            Letter(
                f"{epoch}-{number}", "local_app_v1", "out", "sink", "write", "BAD", "password=abc1", bytes(1 << 18),
                None, None, None, None, epoch, f"2026-01-01T00:00:0{epoch}Z", 0,
            ).to_line()
            for number in range(100)
        )  # fmt: skip
        (tmp_path / f"out-{epoch}.jsonl").write_text("\n".join(lines))
    plan = plan_of(["numbers"], ["out"])
    store = LetterFiles(plan.node("out").spec, FileLetters(type="file", path=str(tmp_path)))
    monkeypatch.setattr("streamling.web.view.letter_stores", lambda plan, settings: {"out": store})
    with served() as api:
        tracemalloc.start()
        found = api.get("/admin/dlq").json()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found["complete"]
        assert found["counts"] == [{"node": "out", "reason_code": "BAD", "status": "open", "letters": 300}]
        assert [found["letters"][0][name] for name in ("epoch", "reason_text")] == [2, "password=*****"]
        assert most < 20 << 20
        monkeypatch.setattr("streamling.web.view._MOST_LETTERS", 150)
        found = api.get("/admin/dlq").json()
        assert not found["complete"]
        assert found["counts"][0]["letters"] == 150
        assert {letter["epoch"] for letter in found["letters"]} == {2}


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


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("topology_node_keys=a,b", {"a", "b"}),
        ("topology_node_keys=a&topology_node_keys=b", {"a", "b"}),
        ("topology_node_keys=a,b%20/%25,%20c", {"a", "b /%, c"}),
        ("topology_node_keys=%C3%BCber", {"über"}),
        ("topology_node_keys=,,", {"a", "b", "b /%, c", "über"}),
    ],
)
def test_nodes_with_commas_and_other_signs_in_their_names_can_be_chosen(query: str, shown: set[str]) -> None:
    with served() as api:
        assert api.samples is not None
        api.samples.set_nodes(["a", "b", "b /%, c", "über"])
        for node in api.samples.nodes:
            api.samples.add(node, [row(1)])
        with api.client.stream("GET", f"/admin/live-data?{query}") as stream:
            found = {event["topology_node_key"] for event in events(stream.iter_lines(), len(shown))}
        assert found == shown


def test_rows_with_other_line_ends_are_one_event_also_for_clients_that_split_there() -> None:
    text = "one\x85two\u2028three\u2029four\r\n\x00 \U0001f600"
    with served() as api:
        assert api.samples is not None
        api.samples.add("numbers", [json.dumps({"text": text}, ensure_ascii=False)])
        with api.client.stream("GET", "/admin/live-data") as stream:
            (event,) = events(stream.iter_lines(), 1)
        assert event["data"]["text"] == text


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
        until(lambda: len(api.samples._subscriptions) <= 20, 20)  # type: ignore[union-attr]
        assert longest < 5
        read_all(stuck)  # it ends
        assert api.get("/healthz").status_code == 200


def test_a_hundred_clients_get_every_row_beside_one_that_reads_nothing_and_one_that_leaves_in_mid_event() -> None:
    with served(live_data_inspect={"records_per_topology_node": 10}) as api, ExitStack() as stack:
        assert api.samples is not None
        api.samples._refresh_s = 0.0  # credits come back at once
        counts = [0] * 98

        def read(client: socket.socket, number: int) -> None:
            rest = b""
            while counts[number] < 60 and (data := client.recv(65536)):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if line.startswith(b"data: "):
                        assert json.loads(line[6:])["data"]["id"] == counts[number]
                        counts[number] += 1

        clients = [stack.enter_context(api.connect(request("/admin/live-data"))) for _ in counts]
        stack.enter_context(api.connect(request("/admin/live-data"), receive_buffer=4096))
        leaving = api.connect(request("/admin/live-data"))
        until(lambda: len(api.samples._subscriptions) == 100)  # type: ignore[union-attr]
        threads = [threading.Thread(target=read, args=(c, n), daemon=True) for n, c in enumerate(clients)]
        for thread in threads:
            thread.start()
        for number in range(60):
            api.samples.add("numbers", [row(number, 60_000)])
            if number == 3:
                leaving.recv(1000)
                leaving.close()
            until(lambda: min(counts) >= number - 2, 20)  # noqa: B023
            assert api.get("/healthz").elapsed.total_seconds() < 8
        for thread in threads:
            thread.join(20)
        assert counts == [60] * 98
        until(lambda: len(api.samples._subscriptions) == 98, 20)  # type: ignore[union-attr]


def test_a_stream_without_rows_has_a_comment_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.web.events._KEEP_ALIVE_S", 0.2)
    with served() as api, api.client.stream("GET", "/admin/live-data") as stream:
        comments = [line for line in islice(stream.iter_lines(), 7) if line]
    assert comments == [": connected", *[": keep-alive"] * 3]


def test_streams_end_with_the_run_also_those_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.web.server._CLOSE_S", 1.0)
    with ExitStack() as stack:
        api = stack.enter_context(served())
        assert api.samples is not None
        reading = stack.enter_context(api.client.stream("GET", "/admin/live-data"))
        stuck = api.connect(request("/admin/live-data"), receive_buffer=4096)
        until(lambda: len(api.samples._subscriptions) == 2)  # type: ignore[union-attr]
        api.samples.add("numbers", [row(number, 60_000) for number in range(15)])
        began = time.monotonic()
        api.server.stop()
        assert time.monotonic() - began < 5
        assert len(events(reading.iter_lines(), 16)) == 15  # and a proper end
        stuck.close()


# The server


def test_the_logs_of_a_program_that_uses_uvicorn_are_not_touched() -> None:
    access, errors = logging.getLogger("uvicorn.access"), logging.getLogger("uvicorn.error")
    access.propagate = True
    errors.setLevel(logging.NOTSET)
    with served() as api:
        api.get("/healthz")
        assert (access.propagate, errors.level) == (True, logging.NOTSET)


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "no-such-name.invalid"])
def test_a_host_that_is_none_is_logged_and_nothing_else(host: str, caplog: pytest.LogCaptureFixture) -> None:
    from streamling.web.server import admin_api

    with served() as api:
        limits = api.server._settings.runtime.model_copy(update={"admin_api_host": host})
        settings = api.server._settings.model_copy(update={"runtime": limits})
        with admin_api(api.server._view, settings) as second:
            assert second is None
    assert f"cannot listen on {host}:" in caplog.text


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
        assert time.monotonic() - began < 1.5
        assert not api.server._thread.is_alive()
