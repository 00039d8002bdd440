"""A webhook whose endpoint is unreliable and whose process is killed: no row is lost, and every request has one key.

The endpoint speaks TLS, resets connections, answers with errors, asks to wait, drips, breaks off and falls silent.
"""

from __future__ import annotations

import json
import random
import signal
import ssl
import threading
from collections import defaultdict
from itertools import cycle
from pathlib import Path

import pytest
import trustme

from support.harness import Workspace
from support.http_server import Answer, RecordingServer, Request, recording_server

pytestmark = pytest.mark.faults

ROWS = 600
KEYS = 50
KILLS = 3
FAULTS = (
    Answer(fault="reset"),
    Answer(500, b"broken"),
    Answer(503, headers={"Retry-After": "0"}),
    Answer(429, headers={"Retry-After": "1"}),
    Answer(body=b"x" * 50, fault="drip"),
    Answer(body=b"x" * 50, fault="cut"),
    Answer(fault="hang"),
)


class Flaky:
    """Fails now and then, in every way in turn, and remembers the rows of those that it has accepted."""

    def __init__(self, seed: int, *, rate: float, delay: float) -> None:
        self._random = random.Random(seed)
        self._faults = cycle(FAULTS)
        self._lock = threading.Lock()
        self.accepted: list[Request] = []
        self.delay = delay
        self.rate = rate

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            if self._random.random() < self.rate:
                return next(self._faults)
            self.accepted.append(request)
            return Answer(delay=self.delay)


def write(place: Workspace, server: RecordingServer, *, one_row: bool) -> None:
    lines = [json.dumps({"id": n, "k": f"k{n % KEYS}"}) for n in range(ROWS)]
    (place.directory / "in").mkdir()
    for part in range(ROWS // 100):
        (place.directory / "in" / f"{part:02d}.jsonl").write_text(
            "\n".join(lines[part * 100 : part * 100 + 100]) + "\n"
        )
    place.write(
        "sources: {rows: {type: file, path: 'in/*.jsonl', format: json, mode: {type: bounded}, primary_key: id, "
        "schema: {id: int64, k: string}}}\n"
        f"sinks: {{hook: {{type: webhook, from: rows, url: '{server.url}/rows', primary_key: k, "
        f"parallelism: {3 if one_row else 1}, one_row_per_request: {str(one_row).lower()}}}}}\n"
    )


@pytest.mark.parametrize("one_row", [True, False])
def test_an_unreliable_endpoint_gets_every_row_and_one_key_for_each_request(
    place: Workspace, tmp_path: Path, one_row: bool
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    flaky = Flaky(seed=7, rate=0.03, delay=0.005) if one_row else Flaky(seed=7, rate=0.1, delay=0.03)
    settings = {"EPOCH__ROWS": 60, "RECORD_BATCH_SIZE": 4, "EXTERNAL_HTTP_HANDLER__OPERATOR_TIMEOUT_SEC": 1}
    environment = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    with recording_server(flaky, context) as server:
        write(place, server, one_row=one_row)
        for _ in range(KILLS):
            child = place.start(spark=False, environment=environment, **settings)
            wanted = len(server.requests) + random.randrange(1, 100 if one_row else 25)
            child.until(lambda wanted=wanted: len(server.requests) >= wanted, "requests")
            child.signal(signal.SIGKILL)
            assert child.wait().code in (-signal.SIGKILL, 0)
        flaky.rate = 0.005
        flaky.delay = 0.0
        place.start(spark=False, environment=environment, **settings).wait().succeeded()
        assert_delivered(flaky, server)


def assert_delivered(flaky: Flaky, server: RecordingServer) -> None:
    rows = [row for request in flaky.accepted for row in request.rows]
    assert {row["id"] for row in rows} == set(range(ROWS))
    keys_of_bodies: dict[bytes, set[str]] = defaultdict(set)
    bodies_of_keys: dict[str, set[bytes]] = defaultdict(set)
    for request in server.requests:
        keys_of_bodies[request.body].add(request.key)
        bodies_of_keys[request.key].add(request.body)
    assert {len(keys) for keys in keys_of_bodies.values()} == {1}
    assert {len(bodies) for bodies in bodies_of_keys.values()} == {1}
    assert len(server.requests) > len(keys_of_bodies)
    first: dict[str, dict[int, None]] = defaultdict(dict)
    for row in rows:
        first[row["k"]].setdefault(row["id"])
    assert all(list(ids) == sorted(ids) for ids in first.values())
