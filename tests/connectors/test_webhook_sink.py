"""The webhook sink against a server: which requests it sends, and what it makes of the answers."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import logging
import ssl
import threading
import time
from dataclasses import replace

import pytest
import trustme

from streamling.connector import Guarantee
from streamling.errors import PermanentError, TransientError, UserError
from support.connector_samples import epoch, rows
from support.http_samples import EPOCH, counts, deliver, webhook
from support.http_server import Answer, Request, in_turn, recording_server

OK = Answer()
ALPHA = '{"name":"alpha","_gs_op":"i"}'


@pytest.mark.parametrize(
    ("fields", "bodies"),
    [
        ("", [f'[{ALPHA},{{"name":null,"_gs_op":"i"}}]']),
        ("one_row_per_request: true", [ALPHA, '{"name":null,"_gs_op":"i"}']),
        (
            "payload_version: 1",
            [
                f'[{{"metadata":{{"op":"i"}},"data":{ALPHA}}},{{"metadata":{{"op":"i"}},"data":{{"name":null,"_gs_op":"i"}}}}]'
            ],
        ),
        (
            "payload_version: 1, one_row_per_request: true, batch_size: 1",
            [f'{{"metadata":{{"op":"i"}},"data":{ALPHA}}}'],
        ),
    ],
)
def test_bodies_are_rows_or_lists_of_rows(fields: str, bodies: list[str]) -> None:
    with recording_server() as server, webhook(server.url, fields) as out:
        assert deliver(out, "alpha", None).rows == 2
        assert [request.body.decode() for request in server.requests][: len(bodies)] == bodies
        assert out.capabilities.guarantee is Guarantee.AT_LEAST_ONCE


def test_a_batch_is_cut_into_requests_and_sent_in_order_over_one_connection() -> None:
    names = [f"n{i}" for i in range(25)]
    with recording_server() as server, webhook(server.url, "batch_size: 10", trigger_max_count=4) as out:
        assert deliver(out, *names).rows == 25
        assert [len(request.rows) for request in server.requests] == [4, 4, 2, 4, 4, 2, 4, 1]
        assert [row["name"] for row in server.rows] == names
        assert {request.connection for request in server.requests} == {1}
        assert deliver(out).rows == 0 and len(server.requests) == 8


def test_headers_are_those_of_the_node_its_secret_and_our_own() -> None:
    fields = "secret_name: CRM-Token, headers: {Accept: text/plain, content-type: application/x.rows+json}"
    with recording_server() as server, webhook(server.url, fields) as out:
        deliver(out, "alpha")
        headers = server.requests[0].headers
    assert (headers["x-crm"], headers["accept"]) == ("s3cret-Of-Crm", "text/plain")
    assert headers["content-type"] == "application/x.rows+json"
    assert headers["user-agent"].startswith("streamling/") and len(headers["idempotency-key"]) == 32


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ("secret_name: other", "STREAMLING__HTTP_SECRET_VALUE__OTHER"),
        ("sign_with: other one", "STREAMLING__HTTP_SECRET_VALUE__OTHER_ONE"),
        ("secret_name: crm_token, headers: {x-CRM: again}", "'headers'"),
    ],
)
def test_a_secret_that_is_missing_or_doubled_is_an_error_of_the_user(fields: str, named: str) -> None:
    with pytest.raises(UserError, match="secret") as caught:
        with webhook("http://localhost:1", fields):
            pass
    assert named in caught.value.message and "s3cret" not in caught.value.message


# Keys


def test_a_key_stays_the_same_in_retries_and_replays_and_differs_otherwise() -> None:
    fields = "one_row_per_request: true"
    with recording_server(in_turn(Answer(503), OK)) as server, webhook(server.url, fields) as out:
        deliver(out, "a", "b", "a")
        deliver(out, "a", "b", "a", epoch_=replace(EPOCH, id="replayed", number=9))
        deliver(out, "a", epoch_=epoch(2, 10, 11))
        keys = [request.key for request in server.requests]
    first, again, b, second_a = keys[:4]
    assert first == again and len({first, b, second_a}) == 3
    assert keys[4:7] == [first, b, second_a]
    assert keys[7] not in keys[:7]


def test_a_key_of_the_user_replaces_ours() -> None:
    with recording_server() as server, webhook(server.url, "headers: {idempotency-KEY: mine}") as out:
        deliver(out, "a")
        assert server.requests[0].key == "mine"


# Answers


@pytest.mark.parametrize(
    ("answer", "class_"),
    [
        (Answer(408), "4xx"),
        (Answer(429), "4xx"),
        (Answer(500), "5xx"),
        (Answer(599), "5xx"),
        (Answer(fault="reset"), "network_error"),
        (Answer(body=b"x" * 1000, fault="cut"), "body_read_error"),
        (Answer(fault="hang"), "timeout"),
        (Answer(body=b"x" * 100, fault="drip"), "timeout"),
    ],
)
def test_transient_failures_are_retried_and_every_attempt_is_counted(answer: Answer, class_: str) -> None:
    with recording_server(in_turn(answer, answer, OK)) as server, webhook(server.url, operator_timeout_sec=1) as out:
        assert deliver(out, "a", "b").rows == 2
        assert len({(request.key, request.body) for request in server.requests}) == 1
        assert counts(out.metrics) == {("retriable_error", class_): 2, ("success", "2xx"): 1}
        assert counts(out.metrics, "streamling_http_retries") == {(class_,): 2}
        assert counts(out.metrics, "streamling_http_request_latency").keys() == counts(out.metrics).keys()


@pytest.mark.parametrize("status", [400, 401, 404, 410, 422, 303])
def test_another_status_fails_with_the_beginning_of_the_answer(status: int) -> None:
    with recording_server(lambda _: Answer(status, b"nope " * 1000)) as server, webhook(server.url) as out:
        with pytest.raises(PermanentError) as caught:
            deliver(out, "a")
        assert len(server.requests) == 1
    assert f"answers {status}: nope nope" in caught.value.message and len(caught.value.message) < 700


def test_an_answer_that_repeats_the_secret_is_masked() -> None:
    def echo(request: Request) -> Answer:
        return Answer(400, json.dumps(request.headers).encode())

    fields = "secret_name: crm_token, headers: {Token: t0ps3cretvalue!}"
    with recording_server(echo) as server, webhook(server.url, fields) as out:
        with pytest.raises(PermanentError) as caught:
            deliver(out, "a")
    assert "s3cret" not in caught.value.message


def test_retry_after_is_respected_by_all_requests_to_the_host() -> None:
    wait = Answer(429, headers={"Retry-After": "1"})
    with recording_server(in_turn(wait, OK)) as server, webhook(server.url) as out:
        out._endpoint.poster._sleep = time.sleep
        began = time.monotonic()
        deliver(out, "a")
        assert 1.0 <= time.monotonic() - began < 3


def test_a_stop_ends_the_retries_and_the_trouble_is_shown_until_then() -> None:
    stop = threading.Event()
    with recording_server(lambda _: Answer(503, b"closed for lunch")) as server:
        with webhook(server.url, ends_retries=stop.is_set) as out:
            seen: list[str | None] = []

            def watch() -> None:
                while not (trouble := out.trouble()):
                    time.sleep(0.005)
                seen.append(trouble)
                stop.set()

            watcher = threading.Thread(target=watch)
            watcher.start()
            with pytest.raises(TransientError):
                deliver(out, "a")
            watcher.join()
    assert "closed for lunch" in (seen[0] or "")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_followed_with_the_body_and_headers_stay_with_their_host(status: int) -> None:
    with recording_server() as other, recording_server() as server:
        elsewhere = f"http://127.0.0.1:{other.server_port}/there"
        server.respond = in_turn(
            Answer(status, headers={"Location": "/moved"}), Answer(status, headers={"Location": elsewhere})
        )
        with webhook(server.url, "secret_name: crm_token") as out:
            assert deliver(out, "a").rows == 1
        assert [request.path for request in server.requests] == ["/", "/moved"]
        assert all("x-crm" in request.headers for request in server.requests)
        (last,) = other.requests
    assert last.rows == [{"name": "a", "_gs_op": "i"}] and "x-crm" not in last.headers
    assert last.key == server.requests[0].key


def test_redirects_in_a_circle_end() -> None:
    with recording_server(lambda _: Answer(307, headers={"Location": "/"})) as server, webhook(server.url) as out:
        with pytest.raises(PermanentError, match="more than 10 redirects"):
            deliver(out, "a")
        assert len(server.requests) == 11


def tls_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.mark.parametrize(("bypassed", "paths"), [("", ["http://shop.invalid/hook"]), ("localhost", [])])
def test_requests_go_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, bypassed: str, paths: list[str]
) -> None:
    with recording_server() as proxy, recording_server() as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", bypassed)
        with webhook(f"{server.url}/hook" if bypassed else "http://shop.invalid/hook") as out:
            deliver(out, "a")
        assert [request.path for request in proxy.requests] == paths
        assert [request.path for request in server.requests] == (["/hook"] if bypassed else [])


def test_a_proxy_tunnels_requests_with_tls(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with recording_server() as proxy, recording_server(context=tls_context(authority)) as server:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with webhook(server.url) as out:
            deliver(out, "a", "b")
        assert proxy.tunnels == [server.url.removeprefix("https://")]
        assert [row["name"] for row in server.rows] == ["a", "b"]


def test_a_certificate_must_be_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    authority = trustme.CA()
    context = tls_context(authority)
    with recording_server(in_turn(Answer(fault="reset"), OK), context) as server:
        with webhook(server.url) as out, pytest.raises(PermanentError, match="not trusted"):
            deliver(out, "a")
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        with webhook(server.url) as out:
            assert deliver(out, "a").rows == 1


# Rows that are refused


def without(bad: str):
    def respond(request: Request) -> Answer:
        return Answer(422, b"bad row") if any(row["name"] == bad for row in request.rows) else OK

    return respond


@pytest.mark.parametrize("one_row", ["true", "false"])
def test_a_row_that_is_refused_is_found_and_the_others_are_delivered(one_row: str) -> None:
    names = [f"n{i}" for i in range(16)]
    with recording_server(without("n5")) as server:
        with webhook(server.url, f"on_error: skip, one_row_per_request: {one_row}") as out:
            report = deliver(out, *names)
        (bad,) = report.bad_rows
        accepted = [row["name"] for r in server.requests if server.respond(r).status == 200 for row in r.rows]
    assert (report.rows, report.rejected, bad.index, bad.reason, bad.cause) == (15, 1, 5, "http_status", "HTTP 422")
    assert bad.row == {"name": "n5", "_gs_op": "i"}
    assert accepted == [name for name in names if name != "n5"]


def test_an_unknown_operation_is_refused_before_anything_is_sent() -> None:
    with recording_server() as server, webhook(server.url) as out:
        report = deliver(out, "a", operation="x")
        assert (report.rows, report.bad_rows[0].reason) == (0, "unknown_operation") and not server.requests
        assert deliver(out, "a", operation="D").rows == 1


def test_what_skip_on_error_skips_is_logged_and_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    answers = in_turn(Answer(500, b"broken"), Answer(fault="reset"), OK)
    fields = "skip_on_error: true, one_row_per_request: true"
    with recording_server(answers) as server, webhook(server.url, fields) as out, caplog.at_level(logging.WARNING):
        report = deliver(out, "a", "b", "c")
        assert out.commit(EPOCH, [report]) == 2
        assert [row["name"] for row in server.rows] == ["a", "b", "b", "c"]
    assert (report.rows, report.skipped, report.rejected) == (2, 1, 0)
    assert "1 row is skipped" in caplog.text and "broken" in caplog.text


# Streams


def test_one_request_is_in_flight_without_parallelism_and_several_with_it_in_order_per_key() -> None:
    batch = rows([f"k{i % 7}" for i in range(60)])
    slow = Answer(delay=0.003)
    with recording_server(lambda _: slow) as server, webhook(server.url, "one_row_per_request: true") as out:
        deliver(out, *batch.column(0).to_pylist())
        assert server.most_in_flight == 1
    with recording_server(lambda _: slow) as server:
        with webhook(server.url, "one_row_per_request: true", key=("name",), width=4) as out:
            assert deliver(out, *batch.column(0).to_pylist()).rows == 60
        assert 1 < server.most_in_flight <= 4
        first = {}
        for request in server.requests:
            first.setdefault(request.json["name"], []).append(request.key)
    # The n-th request of equal bodies has the n-th key.
    assert all(
        [key.partition("-")[2] for key in keys] == ["", *map(str, range(1, len(keys)))] for keys in first.values()
    )


# Ours


def test_bodies_are_compressed_and_signed_as_they_are_sent() -> None:
    with recording_server() as server, webhook(server.url, "compression: gzip, sign_with: signing") as out:
        deliver(out, "a", "b")
        (request,) = server.requests
    signature = hmac.new(b"sign-Ing-K3y", request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-streamling-signature"] == f"sha256={signature}"
    assert request.headers["content-encoding"] == "gzip"
    assert [row["name"] for row in json.loads(gzip.decompress(request.body))] == ["a", "b"]


def test_equal_bodies_of_an_epoch_are_sent_once_if_the_node_says_so() -> None:
    fields = "one_row_per_request: true, deduplicate_requests: true"
    with recording_server() as server, webhook(server.url, fields) as out:
        assert deliver(out, "a", "b", "a", "a").rows == 4
        deliver(out, "a", epoch_=epoch(2, 10, 11))
        assert [row["name"] for row in server.rows] == ["a", "b", "a"]


def test_equal_bodies_that_are_refused_count_for_every_row() -> None:
    fields = "one_row_per_request: true, deduplicate_requests: true, skip_on_error: true"
    with recording_server(lambda _: Answer(400)) as server, webhook(server.url, fields) as out:
        report = deliver(out, "a", "b", "a", "a")
        assert (report.rows, report.skipped) == (0, 4)
        assert len(server.requests) == 2


def test_requests_per_second_are_limited_per_host() -> None:
    fields = "one_row_per_request: true, max_requests_per_second: 50"
    with recording_server() as server, webhook(server.url, fields) as out, webhook(server.url, fields) as second:
        for sink_ in (out, second):
            sink_._endpoint.poster._sleep = time.sleep
        threads = [threading.Thread(target=deliver, args=(s, *map(str, range(15)))) for s in (out, second)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = server.requests[-1].at - began
    assert 29 / 50 - 0.05 <= took < 10
