"""The handler transform against a server: which requests it sends, and which rows it makes of the answers."""

from __future__ import annotations

import json
import pickle
import random
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from streamling.errors import PermanentError, StreamlingError, TransientError, UserError
from streamling.formats.json_arrays import split_array
from support.http_samples import EPOCH, asked, counts, handler
from support.http_server import Answer, Request, in_turn, recording_server

WORDS = ("alpha", "beta", "gamma")


def updated(request: Request) -> Answer:
    """Prefixes the data of every row."""
    rows = request.json if isinstance(request.json, list) else [request.json]
    for row in rows:
        inner = row["data"] if "metadata" in row else row
        inner["data"] = f"updated-{inner['data']}"
    return Answer(body=json.dumps(rows if isinstance(request.json, list) else rows[0]).encode())


def answering(value: Any) -> Answer:
    return Answer(body=value if isinstance(value, bytes) else json.dumps(value).encode())


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("one_row", [True, False])
def test_rows_are_replaced_by_those_of_the_answer_in_order(one_row: bool, version: int) -> None:
    fields = f"one_row_per_request: {str(one_row).lower()}, payload_version: {version}"
    with recording_server(updated) as server, handler(server.url, fields) as asks:
        rows, bad = asked(asks, *WORDS)
        sent = sorted(server.requests, key=lambda request: request.body)
    assert [(row["id"], row["data"], row["_gs_op"]) for row in rows] == [
        (n, f"updated-{word}", "i") for n, word in enumerate(WORDS, 1)
    ]
    assert [row["big"] for row in rows] == [str(2**255 + n) for n in range(3)] and not bad
    assert len(sent) == (3 if one_row else 1)
    first = sent[0].rows[0]
    if version == 1:
        assert first["metadata"] == {"op": "i"}
        first = first["data"]
    assert first == {"id": 1, "data": "alpha", "big": str(2**255), "_gs_op": "i"}


def test_requests_in_flight_are_bounded_and_rows_leave_in_order() -> None:
    def slowly(request: Request) -> Answer:
        return replace(updated(request), delay=random.uniform(0, 0.03))

    words = [f"w{n}" for n in range(60)]
    with recording_server(slowly) as server:
        with handler(server.url, "one_row_per_request: true", buffer_size=7) as asks:
            rows, _ = asked(asks, *words)
        assert 3 <= server.most_in_flight <= 7
        assert len({request.connection for request in server.requests}) <= 7
    assert [row["data"] for row in rows] == [f"updated-{word}" for word in words]


def test_rows_of_a_batch_are_sent_one_after_the_other() -> None:
    """If the node sets `batch_size`; then the batches overlap."""
    with recording_server(lambda request: replace(updated(request), delay=0.01)) as server:
        with handler(server.url, "one_row_per_request: true, batch_size: 5") as asks:
            asked(asks, *(f"w{n}" for n in range(20)))
        order = [request.json["id"] for request in server.requests]
        assert 1 < server.most_in_flight <= 4
    for first in (1, 6, 11, 16):
        assert [n for n in order if first <= n < first + 5] == list(range(first, first + 5))


def test_a_batch_is_cut_into_requests() -> None:
    with recording_server(updated) as server, handler(server.url, "batch_size: 5", trigger_max_count=2) as asks:
        rows, _ = asked(asks, *(f"w{n}" for n in range(7)))
    assert sorted(len(request.rows) for request in server.requests) == [1, 2, 2, 2]
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]


def test_an_endpoint_may_drop_and_add_rows() -> None:
    def twice_or_never(request: Request) -> Answer:
        return answering([row for row in request.json for _ in range(2) if row["id"] != 2])

    with recording_server(twice_or_never) as server, handler(server.url) as asks:
        assert [row["id"] for row in asked(asks, *WORDS)[0]] == [1, 1, 3, 3]
        server.respond = lambda _: answering([])
        assert asked(asks, *WORDS) == ([], [])


def test_columns_of_the_answer_follow_schema_override() -> None:
    def score(request: Request) -> Answer:
        return answering(
            [{"id": row["id"], "score": row["id"] / 2, "big": "5", "junk": [1], "_gs_op": "u"} for row in request.json]
        )

    fields = "schema_override: {score: float64, data: null, big: string}"
    with recording_server(score) as server, handler(server.url, fields) as asks:
        rows, _ = asked(asks, "a")
        assert "data" in server.requests[0].rows[0]
        server.respond = lambda _: answering([{"id": 1, "_gs_op": "d"}])
        rows += asked(asks, "a")[0]
    assert rows == [
        {"id": 1, "big": "5", "score": 0.5, "_gs_op": "u"},
        {"id": 1, "big": None, "score": None, "_gs_op": "d"},
    ]


@pytest.mark.parametrize(
    ("fields", "answer", "operation"),
    [
        ("one_row_per_request: true", {"id": 1}, "d"),
        ("payload_version: 1", [{"metadata": {"op": "u"}, "data": {"id": 1}}], "u"),
        ("payload_version: 1", [{"metadata": 5, "data": {"id": 1, "_gs_op": "i"}}], "i"),
    ],
)
def test_an_operation_that_the_row_lacks_comes_from_the_envelope_or_the_request(
    fields: str, answer: Any, operation: str
) -> None:
    with recording_server(lambda _: answering(answer)) as server, handler(server.url, fields) as asks:
        assert [row["_gs_op"] for row in asked(asks, "a", operation="d")[0]] == [operation]


# Answers that cannot be used


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>maintenance</html>", b'{"id":1}', b"[1]", b'[{"id":1,}]', b"[{}", b"[{}]]", b"\xff", b"null"],
)
def test_an_answer_of_another_form_is_an_error_of_the_user_and_not_repeated(answer: bytes) -> None:
    with recording_server(lambda _: Answer(body=answer)) as server, handler(server.url) as asks:
        with pytest.raises(UserError, match="the answer is not a list of JSON objects") as caught:
            asked(asks, "a", "b")
        assert len(server.requests) == 1 and len(caught.value.message) < 700


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"id": "x", "_gs_op": "i"}], '"x" is not a valid int64'),
        ([{"id": None, "_gs_op": "i"}], "column 'id' is missing or null"),
        ([{"id": 1}], "_gs_op is null"),
        ([{"id": 1, "_gs_op": "x"}], "_gs_op is 'x'"),
        ([{"id": 1, "big": -5, "_gs_op": "i"}], "-5 is not a valid u256"),
    ],
)
def test_a_row_of_the_answer_that_does_not_fit_is_named(rows: Any, fault: str) -> None:
    good = {"id": 2, "data": "b", "_gs_op": "i"}
    with recording_server(lambda _: answering([*rows, good])) as server, handler(server.url, "on_error: skip") as asks:
        found, (bad,) = asked(asks, "a", "b")
    assert [row["id"] for row in found] == [2]
    assert bad.reason == "schema_mismatch" and fault in bad.message


def test_a_bad_row_is_the_one_of_the_request_where_its_key_tells() -> None:
    answers = [{"id": 2, "big": "many", "_gs_op": "i"}, {"id": 9, "big": "many", "_gs_op": "i"}]
    with recording_server(lambda _: answering(answers)) as server, handler(server.url, "on_error: skip") as asks:
        _, (known, unknown) = asked(asks, "a", "b")
    assert isinstance(known.row, dict) and (known.row["id"], known.row["data"], known.raw) == (2, "b", None)
    assert unknown.row is None and json.loads(unknown.raw or b"") == answers[1]


@pytest.mark.parametrize("one_row", ["true", "false"])
def test_rows_that_the_endpoint_refuses_are_found(one_row: str) -> None:
    def picky(request: Request) -> Answer:
        return Answer(422, b"no c") if b'"c"' in request.body else updated(request)

    fields = f"on_error: skip, one_row_per_request: {one_row}"
    with recording_server(picky) as server, handler(server.url, fields) as asks:
        rows, (bad,) = asked(asks, *"abcdef")
    assert [row["id"] for row in rows] == [1, 2, 4, 5, 6]
    assert (bad.reason, bad.cause) == ("http_status", "HTTP 422") and isinstance(bad.row, dict) and bad.row["id"] == 3


def test_rows_whose_answer_cannot_be_read_are_set_aside_and_the_others_go_on() -> None:
    def garbled(request: Request) -> Answer:
        return Answer(body=b"oops") if b'"beta"' in request.body else updated(request)

    fields = "on_error: skip, one_row_per_request: true"
    with recording_server(garbled) as server, handler(server.url, fields) as asks:
        rows, (bad,) = asked(asks, *WORDS)
    assert [row["id"] for row in rows] == [1, 3] and bad.reason == "bad_answer" and "oops" in bad.message


def test_a_status_that_is_not_retried_ends_the_run_and_the_requests_in_flight() -> None:
    def fatal(request: Request) -> Answer:
        return Answer(403, b"who are you") if request.json["id"] == 3 else Answer(fault="hang")

    with recording_server(fatal) as server, handler(server.url, "one_row_per_request: true") as asks:
        server.respond = lambda request: fatal(request) if request.json["id"] >= 3 else updated(request)
        began = time.monotonic()
        with pytest.raises(PermanentError, match="answers 403: who are you"):
            asked(asks, *"abcdef")
        assert time.monotonic() - began < 5


# Retries, keys


def test_retries_happen_inside_and_only_for_the_request_that_failed() -> None:
    failed = set()

    def once(request: Request) -> Answer:
        if request.body not in failed and request.json["id"] % 2:
            failed.add(request.body)
            return Answer(503)
        return updated(request)

    with recording_server(once) as server, handler(server.url, "one_row_per_request: true") as asks:
        rows, _ = asked(asks, *"abcd")
        assert counts(asks.metrics) == {("retriable_error", "5xx"): 2, ("success", "2xx"): 4}
        assert len({(request.key, request.body) for request in server.requests}) == 4
    assert [row["id"] for row in rows] == [1, 2, 3, 4]


def test_a_stop_ends_the_retries_and_the_trouble_shows_until_then() -> None:
    stop = threading.Event()
    with recording_server(lambda _: Answer(500, b"down")) as server:
        with handler(server.url, ends_retries=stop.is_set) as asks:
            seen: list[str | None] = []

            def watch() -> None:
                while not (trouble := asks.trouble()):
                    time.sleep(0.005)
                seen.append(trouble)
                stop.set()

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            with pytest.raises(TransientError):
                asked(asks, "a")
            watcher.join(20)
    assert "answers 500: down" in (seen[0] or "")


def test_the_key_of_a_request_is_the_same_in_a_replay_also_with_other_requests_in_flight() -> None:
    fields = "one_row_per_request: true"
    with recording_server(updated) as server, handler(server.url, fields) as asks:
        asked(asks, *"aabc")
        first = {request.key: request.body for request in server.requests}
        asked(asks, *"aabc", epoch_=replace(EPOCH, id="again"))
        assert {request.key: request.body for request in server.requests[4:]} == first and len(first) == 4
        asked(asks, *"aabc", epoch_=replace(EPOCH, partition=1))
        assert not {request.key for request in server.requests[8:]} & set(first)


def test_rows_of_one_key_do_not_overtake_each_other() -> None:
    with recording_server(lambda request: replace(updated(request), delay=random.uniform(0, 0.02))) as server:
        with handler(server.url, "one_row_per_request: true", buffer_size=10) as asks:
            processor = asks.processor()
            import pyarrow as pa

            numbers = list(range(40))
            batch = pa.RecordBatch.from_pydict(
                {
                    "id": pa.array([n % 4 for n in numbers], pa.int64()),
                    "data": pa.array([str(n) for n in numbers]),
                    "big": pa.nulls(40, pa.string()),
                    "_gs_op": pa.array(["u"] * 40),
                }
            )
            list(processor.process(EPOCH, iter([batch])))
        order = [(request.json["id"], int(request.json["data"])) for request in server.requests]
    for key in range(4):
        of_key = [n for id_, n in order if id_ == key]
        assert of_key == sorted(of_key)


def test_equal_bodies_are_sent_once_if_the_node_says_so() -> None:
    fields = "one_row_per_request: true, deduplicate_requests: true, schema_override: {extra: string}"
    with recording_server(updated) as server, handler(server.url, fields) as asks:
        import pyarrow as pa

        batch = pa.RecordBatch.from_pydict(
            {
                "id": pa.array([1, 2, 1, 1], pa.int64()),
                "data": pa.array(["a", "b", "a", "a"]),
                "big": pa.nulls(4, pa.string()),
                "_gs_op": pa.array(["i"] * 4),
            }
        )
        items = list(asks.processor().process(EPOCH, iter([batch])))
        assert sum(item.num_rows for item in items) == 4 and len(server.requests) == 2


def test_a_worker_shares_the_limits_and_sends_its_counts_with_the_rows() -> None:
    with recording_server(lambda request: replace(updated(request), delay=0.01)) as server:
        with handler(server.url, "one_row_per_request: true", buffer_size=9) as asks:
            # Elsewhere there is no client of the driver.
            processor = pickle.loads(pickle.dumps(asks.processor()))
            epoch = replace(EPOCH, tasks=3, partition=2)
            import pyarrow as pa

            batch = pa.RecordBatch.from_pydict(
                {
                    "id": pa.array(range(20), pa.int64()),
                    "data": pa.array(["x"] * 20),
                    "big": pa.nulls(20, pa.string()),
                    "_gs_op": pa.array(["i"] * 20),
                }
            )
            items = list(processor.process(epoch, iter([batch])))
            assert server.most_in_flight <= 3
            assert counts(asks.metrics) == {}
            asks.count({item.what: item.count for item in items if hasattr(item, "what")})
            assert counts(asks.metrics) == {("success", "2xx"): 20}


# Lists


@pytest.mark.parametrize(
    "elements",
    [[], ["{}"], ['{"a":"]},{\\\\"}', '{"b":"\\"[,"}', "[1,2]", '"x,y"'], [' {"a" : [1, {"b":2}] }', "3"]],
)
def test_a_list_is_split_at_its_own_commas(elements: list[str]) -> None:
    text = "[" + ",".join(elements) + "] "
    assert split_array(text.encode()) == [element.strip().encode() for element in elements]


@pytest.mark.parametrize("text", ["", "{}", "[", "]", "[}", '["]', "[]]", "[[]", "[],[]", "x[]"])
def test_what_is_not_one_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        split_array(text.encode())


def test_no_error_shows_a_secret() -> None:
    def echo(request: Request) -> Answer:
        return Answer(200, json.dumps(request.headers).encode())

    with recording_server(echo) as server:
        with handler(server.url, "secret_name: crm_token, headers: {Token: t0ps3cretvalue!}") as asks:
            with pytest.raises(StreamlingError) as caught:
                asked(asks, "a")
    assert "s3cret" not in f"{caught.value.message}{caught.value!r}{asks.processor()!r}"


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    with recording_server(in_turn(Answer(fault="cut", body=b"[" + b" " * 100), Answer(body=b"[]"))) as server:
        with handler(server.url) as asks:
            assert asked(asks, "a") == ([], [])
            assert counts(asks.metrics) == {("retriable_error", "body_read_error"): 1, ("success", "2xx"): 1}
