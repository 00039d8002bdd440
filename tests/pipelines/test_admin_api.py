"""The admin API of running pipelines: samples of every node, documents, failures, `top`."""

from __future__ import annotations

import re
import signal
import time
from contextlib import ExitStack
from itertools import islice
from typing import Any

import httpx
import pytest

from support.admin_client import INSPECT, client_of
from support.admin_server import events, stream_events
from support.harness import Workspace

pytestmark = pytest.mark.spark

FUSED = """\
sources:
  numbers: {type: generator, rows: 1000000, rate: 200, primary_key: id}
transforms:
  even: {type: sql, primary_key: id, sql: SELECT id FROM numbers WHERE id % 2 = 0}
  doubled:
    type: sql
    primary_key: id
    sql: SELECT id, id * 2 AS twice, CAST('123456789012345678901234567890.5' AS DECIMAL(38, 1)) AS wide FROM even
  scripted: {type: script, from: doubled, language: javascript, script: "function invoke(row) { return row }",
             schema: {id: int64, twice: int64}, primary_key: id}
  last: {type: sql, primary_key: id, sql: SELECT id FROM scripted}
sinks:
  out: {type: blackhole, from: last}
"""


def rows_by_node(client: httpx.Client, nodes: set[str], seconds: float = 240) -> dict[str, list[Any]]:
    """Rows of live data, until there are some of every node."""
    found: dict[str, list[Any]] = {}
    deadline = time.monotonic() + seconds
    while set(found) < nodes:
        assert time.monotonic() < deadline, f"no rows of {nodes - set(found)}"
        with client.stream("GET", "/admin/live-data") as stream:
            for event in islice(stream_events(stream.iter_lines()), 100):
                found.setdefault(event["topology_node_key"], []).append(event["data"])
                if set(found) == nodes:
                    break
    return found


def test_rows_of_every_node_are_shown_also_of_queries_that_spark_computes_together(place: Workspace) -> None:
    run = place.write(FUSED).start_warm(**INSPECT)
    with client_of(run) as client:
        nodes = {"numbers", "even", "doubled", "scripted", "last"}
        rows = rows_by_node(client, nodes)
        assert set(rows) == nodes
        run.until_epochs(1)  # rows are sampled before their epoch is finalized
        assert all(row["id"] % 2 == 0 for row in rows["even"])
        assert all(row["twice"] == 2 * row["id"] for row in (*rows["doubled"], *rows["scripted"]))
        with client.stream("GET", "/admin/live-data?topology_node_keys=doubled") as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("data: "))
            assert '"wide":123456789012345678901234567890.5' in next(lines)
        assert client.get("/readyz").json()["ready"] is True
        nodes_of_plan = {node["name"]: node for node in client.get("/admin/pipeline").json()["nodes"]}
        assert nodes_of_plan["doubled"]["reads"] == ["even"]
        assert [column["name"] for column in nodes_of_plan["even"]["columns"]] == ["id", "_gs_op"]
        progress = client.get("/admin/progress").json()["snapshot"]
        assert (progress["phase"], progress["nodes"][0]["name"]) == ("running", "numbers")
        (*_, epoch) = client.get("/admin/epochs").json()["epochs"]
        assert epoch["rows"] > 0
        assert epoch["total_ms"] >= epoch["sinks"]["out"] > 0
        assert 'streamling_output_rows_total{id="doubled"' in client.get("/metrics").text
        assert "numbers:generator" in client.get("/admin/state").json()["positions"]
    run.stop().succeeded()


def test_rows_of_epochs_that_workers_read_are_shown(place: Workspace) -> None:
    last = "  last: {type: sql, primary_key: id, sql: SELECT id FROM scripted}\n"
    pipeline = FUSED.replace(last, "").replace("from: last", "from: scripted")
    place.write(pipeline.replace("rows: 1000000, rate: 200", "rows: 1000000000"))
    run = place.start_warm(**INSPECT, EPOCH__DRIVER_ROWS=100, EPOCH__ROWS=20_000)
    with client_of(run) as client:
        rows = rows_by_node(client, {"numbers", "even", "doubled", "scripted"})
        assert all(row["twice"] == 2 * row["id"] for row in rows["scripted"])
    run.stop().succeeded()


def test_the_admin_api_without_inspection_and_top_show_the_same_numbers(place: Workspace) -> None:
    place.write(FUSED)
    run = place.start_warm(ADMIN_API_ENABLED="true", ADMIN_API_PORT=0)
    run.until_epochs(1)
    with client_of(run) as client:
        assert client.get("/admin/live-data").status_code == 404
        port = str(client.base_url.port)
        shown = place.run("top", "--once", "--port", port, cold=True).succeeded().stdout
        assert re.search(r"^running  pipeline.yaml .* epoch", shown, re.MULTILINE), shown
        assert re.search(r"^numbers \(generator\) +[1-9][\d,]*", shown, re.MULTILINE), shown
    run.stop().succeeded()
    gone = place.run("top", "--once", "--port", port, cold=True).failed()
    assert f"no pipeline answers at http://127.0.0.1:{port}" in gone.stderr
    assert "[ADMIN_API]" in gone.stderr


def test_secrets_of_options_are_not_shown(place: Workspace) -> None:
    place.write("""\
sources:
  numbers: {type: generator, rows: 1000000, rate: 10, primary_key: id}
sinks:
  out:
    type: webhook
    from: numbers
    url: http://user:hunter2hunter2@127.0.0.1:9/path?token=abcdefghijk
    headers: {X-Own: topsecretvalue1}
""")
    run = place.start(**INSPECT, ADMIN_API_TOKEN="a-token-that-is-long-enough")
    with client_of(run, headers={"authorization": "Bearer a-token-that-is-long-enough"}) as client:
        run.until(lambda: client.get("/admin/pipeline").status_code == 200, "the plan")
        run.until(lambda: "webhook" in client.get("/admin/progress").text, "nodes")
        texts = [client.get(path).text for path in ("/admin/pipeline", "/admin/progress", "/admin/state", "/readyz")]
        text = "\n".join(texts)
        assert "hunter2" not in text
        assert "abcdefghijk" not in text
        assert "topsecretvalue1" not in text
        assert "a-token-that" not in text
        port = str(client.base_url.port)
    wrong = place.run("top", "--once", "--port", port, "--token", "wrong", cold=True).failed()
    assert "its token is another one" in wrong.stderr
    none = place.run("top", "--once", "--port", port, cold=True, environment={"STREAMLING__ADMIN_API_TOKEN": None})
    assert "it needs a token" in none.failed().stderr
    run.signal(signal.SIGTERM)
    run.wait()


def test_a_tolerant_process_serves_its_error_until_it_is_stopped(place: Workspace) -> None:
    place.write("sources: {numbers: {type: generator, rows: 5}}\nsinks: {out: {type: blackhole, from: nobody}}\n")
    run = place.start(**INSPECT, PREVIEW_TOLERANT_MODE="true")
    with client_of(run) as client:
        run.until(lambda: client.get("/admin/error").status_code == 200, "the error")
        error = client.get("/admin/error").json()
        assert (error["internal"], error["retriable"]) == (False, False)
        assert "nobody" in error["message"]
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        time.sleep(1)
        assert run.ended() is None
    run.signal(signal.SIGTERM)
    ended = run.wait().failed()
    assert "keeps serving the error" in ended.stderr


def test_without_tolerance_the_process_ends(place: Workspace) -> None:
    place.write("sources: {numbers: {type: generator, rows: 5}}\nsinks: {out: {type: blackhole, from: nobody}}\n")
    place.start(**INSPECT).wait().failed()


def test_a_port_that_is_taken_does_not_stop_the_pipeline(place: Workspace) -> None:
    place.write(FUSED.replace("rows: 1000000, rate: 200", "rows: 50"))
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = place.run(LIVE_DATA_INSPECT_ENABLED="true", ADMIN_API_PORT=port).succeeded()
    assert f"the admin API cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "done: 50 rows" in ended.stderr


def test_a_program_has_the_admin_api_too(place: Workspace) -> None:
    place.write(FUSED.replace("rows: 1000000, rate: 200", "rows: 300, rate: 100"))
    ended = place.run_program("""\
import json, logging, re, threading, time, urllib.request
import streamling
addresses = []

class Addresses(logging.Handler):
    def emit(self, record):
        addresses.extend(re.findall(r"listens on (http://.*)", record.getMessage()))

logging.basicConfig(level=logging.INFO, handlers=[Addresses()])

def look():
    while not addresses:
        time.sleep(0.05)
    while True:
        try:
            print(json.load(urllib.request.urlopen(addresses[0] + "/readyz"))["ready"], flush=True)
            return
        except urllib.error.HTTPError:
            time.sleep(0.1)

watch = threading.Thread(target=look)
watch.start()
streamling.run("pipeline.yaml", {"admin_api_enabled": True, "admin_api_port": 0})
watch.join()
""")
    assert ended.succeeded().stdout == "True\n"


ODD = """\
sources:
  "zahlen, ü/%":
    type: generator
    rows: 100000
    rate: 5
    primary_key: id
    columns:
      id: id
      "100 % ü": "repeat('xyz', 400000)"
      nan: "CAST('NaN' AS DOUBLE)"
transforms:
  middle:
    type: sql
    primary_key: id
    sql: >-
      SELECT id, "100 % ü" AS text, nan, CAST('-12345678901234567890123456789012345.678' AS DECIMAL(38, 3)) AS wide,
      CAST('9223372036854775807' AS BIGINT) AS most FROM "zahlen, ü/%"
  last: {type: sql, primary_key: id, sql: SELECT id FROM middle WHERE id >= 0}
sinks:
  out: {type: blackhole, from: last}
"""


def test_large_rows_and_odd_names_and_fifty_streams_at_a_stop(place: Workspace) -> None:
    """Rows of 1 MB. Half of the clients do not read; the process stops as fast as without clients, and well."""
    run = place.write(ODD).start(**INSPECT, LIVE_DATA_INSPECT__REFRESH_IN_SECS=1)
    with client_of(run) as client, ExitStack() as stack:
        rows = rows_by_node(client, {"zahlen, ü/%", "middle", "last"})
        assert {len(row["100 % ü"]) for row in rows["zahlen, ü/%"]} == {1000 + len("... (1,200,000 bytes)")}
        assert all(row["nan"] is None for row in rows["middle"])
        with client.stream("GET", "/admin/live-data", params={"topology_node_keys": "zahlen, ü/%"}) as stream:
            assert {event["topology_node_key"] for event in events(stream.iter_lines(), 3)} == {"zahlen, ü/%"}
        with client.stream("GET", "/admin/live-data?topology_node_keys=middle") as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("data: "))
            assert '"wide":-12345678901234567890123456789012345.678,"most":9223372036854775807' in next(lines)
        for path in ("/admin/pipeline", "/admin/progress", "/admin/state", "/admin/epochs", "/admin/dlq"):
            assert client.get(path).json()
        assert 'id="zahlen, ü/%"' in client.get("/metrics").text
        assert "zahlen, ü/%" in place.run("top", "--once", "--url", str(client.base_url), cold=True).succeeded().stdout
        for number in range(50):
            stream = stack.enter_context(client.stream("GET", "/admin/live-data"))
            if number % 2:
                next(stream.iter_lines())
        slowest = max(client.get("/healthz").elapsed.total_seconds() for _ in range(20))
        run.signal(signal.SIGTERM)
        began = time.monotonic()
        run.wait().succeeded()
        assert time.monotonic() - began < 15
        assert slowest < 2
    assert "Traceback" not in run.stderr
