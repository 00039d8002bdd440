"""Rows for which the filter or a column of a source cannot be computed: `on_error` of the source decides."""

from __future__ import annotations

import base64
import json
import signal
from typing import Any

import pytest

from streamling.dev.topics import Message
from streamling.testing.crash import VARIABLE
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.otlp_receiver import http_receiver

pytestmark = pytest.mark.spark

FILTERED = """\
sources:
  orders:
    type: kafka
    topic: {topic}
    data_format: json
    schema: {{id: int64, text: string}}
    primary_key: id
    filter: {filter}
    {policy}
transforms:
  chosen: {{type: sql, primary_key: id, sql: SELECT id FROM orders}}
sinks:
  out: {{type: file, from: chosen, path: out, format: parquet}}
"""
LETTERS = "on_error: dead_letter\n    dead_letter: {type: file, path: letters}"
COUNT = 40
# Offset 3 does not fit the schema, offset 7 not cast, offset 20 divides by zero.
BAD = {3: "schema_mismatch", 7: "cast_error", 20: "arithmetic_error"}


def messages() -> list[Message]:
    texts = {7: "seven", 20: "0"}
    rows = [{"id": "x" if n == 3 else n, "text": texts.get(n, "1")} for n in range(COUNT)]
    return [Message(json.dumps(row).encode(), f"k{n}".encode(), (("h", b"v"),)) for n, row in enumerate(rows)]


def letters(place: Workspace) -> list[dict[str, Any]]:
    files = sorted((place.directory / "letters").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def ids(place: Workspace) -> list[int]:
    return [row["id"] for row in place.rows("out", "parquet")]


@pytest.mark.servers
@pytest.mark.parametrize("driver_rows", [20_000, 0], ids=["small", "large"])
def test_rows_that_a_filter_cannot_compute_are_letters_with_place_and_payload(
    place: Workspace, kafka: KafkaBroker, driver_rows: int
) -> None:
    topic = kafka.topic()
    sent = messages()
    kafka.produce(topic, sent)
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "EPOCH__DRIVER_ROWS": driver_rows}

    def write(condition: str) -> None:
        place.write(FILTERED.format(topic=topic, filter=condition, policy=LETTERS))

    write("100 / CAST(text AS BIGINT) > 1 AND id <> 30")
    place.run(**settings, NUM_RECORDS_BEFORE_STOP=COUNT - 4).succeeded()
    assert ids(place) == [n for n in range(COUNT) if n not in (*BAD, 30)]
    found = {letter["source"]["offset"]: letter for letter in letters(place)}
    assert {offset: letter["reason_code"] for offset, letter in found.items()} == BAD
    for offset, letter in found.items():
        assert letter["source"] == {"node": "orders", "topic": topic, "partition": 0, "offset": offset}
        assert (letter["node"], letter["stage"]) == ("orders", "decode")
        assert base64.b64decode(letter["raw"]) == sent[offset].value
        assert base64.b64decode(letter["raw_key"]) == sent[offset].key
        assert letter["headers"] == [["h", base64.b64encode(b"v").decode()]]
    assert "seven" in found[7]["reason_text"]

    again = place.run("dlq", "replay", "--all", **settings)
    assert "3 letters failed again, still open" in again.stdout + again.stderr
    write("100 / NULLIF(TRY_CAST(text AS BIGINT), 0) > 1 OR id IN (7, 20)")
    replayed = place.run("dlq", "replay", "--all", "--reason", "cast_error", **settings).succeeded()
    assert "replayed 1 letter" in replayed.stdout
    assert ids(place)[-1] == 7


@pytest.mark.servers
def test_rows_that_a_filter_cannot_compute_are_skipped_and_named(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, messages())
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "NUM_RECORDS_BEFORE_STOP": COUNT - 3}
    condition = "100 / CAST(text AS BIGINT) > 1"
    place.write(FILTERED.format(topic=topic, filter=condition, policy="on_error: skip"))
    finished = place.run(**settings).succeeded()
    assert len(ids(place)) == COUNT - 3
    place_of_row = f"topic '{topic}', partition 0, offset 7"
    assert f"node 'orders' skipped 1 row (cast_error), the last at {place_of_row}" in finished.stderr
    assert "set aside: 3 rows" in finished.stderr


SHARES = """\
sources:
  numbers:
    type: generator
    rows: 3000
    primary_key: id
    columns: {{id: id, share: 100 / (id - 1234)}}
    {policy}
transforms:
  chosen: {{type: sql, primary_key: id, sql: "SELECT id, share FROM numbers"}}
sinks:
  out: {{type: file, from: chosen, path: out, format: parquet}}
"""


def test_columns_that_a_generator_cannot_compute_are_bad_rows_of_it(place: Workspace) -> None:
    place.write(SHARES.format(policy="on_error: fail"))
    failed = place.run().failed()
    assert "DATA_ERROR" in failed.stderr
    assert "generator source 'numbers': a row cannot be computed" in failed.stderr
    place.write(SHARES.format(policy=LETTERS))
    place.run().succeeded()
    assert ids(place) == [n for n in range(3000) if n != 1234]
    (letter,) = letters(place)
    assert (letter["node"], letter["reason_code"], letter["row"]) == ("numbers", "arithmetic_error", {"id": 1234})


@pytest.mark.parametrize("driver_rows", [20_000, 0], ids=["small", "large"])
def test_bad_rows_of_a_source_are_found_also_if_its_rows_are_computed_before_they_are_read(
    place: Workspace, driver_rows: int
) -> None:
    """Because two nodes read them, or because their event time is measured."""
    clock = "telemetry: {event_time: {column: id, unit: seconds}}"
    text = SHARES.replace("columns: {{id: id,", "columns: {{id: id + 0,").format(policy=f"{LETTERS}\n    {clock}")
    place.write(f"{text}  other: {{type: blackhole, from: numbers}}\n")
    with http_receiver() as receiver:
        exporting = {"OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT": receiver.endpoint}
        place.run(EPOCH__DRIVER_ROWS=driver_rows, **exporting).succeeded()
        (lag,) = receiver.series("streamling_event_time_lag")
        (rows,) = receiver.series("streamling_output_rows", id="numbers")
        (rejected,) = receiver.series("streamling_rows_dead_lettered")
    assert ids(place) == [n for n in range(3000) if n != 1234]
    assert (lag.labels["id"], lag.count, rows.value, rejected.value) == ("numbers", 2999, 2999, 1)
    assert [letter["row"]["id"] for letter in letters(place)] == [1234]


@pytest.mark.faults
def test_letters_of_an_epoch_that_only_lacks_them_are_stored_after_a_kill(place: Workspace) -> None:
    place.write(SHARES.format(policy=LETTERS))
    killed = place.start(environment={VARIABLE: "after-commit:out"}).wait()
    assert killed.code == -signal.SIGKILL, killed.stderr
    assert letters(place) == []
    place.run().succeeded()
    assert ids(place) == [n for n in range(3000) if n != 1234]
    assert [letter["row"]["id"] for letter in letters(place)] == [1234]
