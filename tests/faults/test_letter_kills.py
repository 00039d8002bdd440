"""Processes that are killed lose no dead letter and store none twice."""

from __future__ import annotations

import json
import signal

import pytest

from streamling.dev.topics import Message
from streamling.testing.crash import VARIABLE
from support.harness import Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.servers]

PIPELINE = """\
sources:
  events:
    type: kafka
    topic: {topic}
    data_format: json
    schema: {{id: int64}}
    on_error: dead_letter
    dead_letter: {{type: postgres}}
sinks:
  table: {{type: postgres, from: events, schema: public, table: rows, batch_size: 100}}
"""
COUNT = 3000


def test_every_bad_message_is_a_letter_once(place: Workspace, kafka: KafkaBroker, postgres: PostgresServer) -> None:
    database, topic = postgres.database(), kafka.topic()
    kafka.produce(topic, [Message(b"{" if n % 100 == 99 else json.dumps({"id": n}).encode()) for n in range(COUNT)])
    place.write(PIPELINE.format(topic=topic))
    settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "EPOCH__ROWS": 200, **database.settings()}
    for point in ("before-finalize@2", "after-commit@2", "after-write@3"):
        killed = place.start(environment={VARIABLE: point}, spark=False, **settings).wait()
        assert killed.code == -signal.SIGKILL, killed.stderr
    last = place.start(spark=False, **settings)
    last.until(lambda: database.rows(f"SELECT 1 FROM rows WHERE id = {COUNT - 2}"), "the last row")
    last.signal(signal.SIGTERM)
    last.wait().succeeded()
    good = [n for n in range(COUNT) if n % 100 != 99]
    assert [id_ for (id_,) in database.rows("SELECT id FROM rows ORDER BY id")] == good
    offsets = database.rows("SELECT (source->>'offset')::int FROM streamling.dead_letters ORDER BY 1")
    assert [offset for (offset,) in offsets] == [n for n in range(COUNT) if n % 100 == 99]


QUERY = """\
sources:
  numbers:
    {type: generator, rows: 20, primary_key: id, columns: {id: id, text: "CASE WHEN id = 7 THEN 'x' ELSE '1' END"}}
transforms:
  parsed:
    type: sql
    primary_key: id
    sql: SELECT id, CAST(text AS BIGINT) AS n FROM numbers
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
sinks:
  first: {type: file, from: parsed, path: first, format: parquet}
  second: {type: file, from: numbers, path: second, format: parquet}
"""


@pytest.mark.spark
def test_a_row_that_a_query_left_out_of_a_sink_which_has_the_epoch_is_still_a_letter(place: Workspace) -> None:
    """Letters of queries are stored when every sink has the epoch: the process was killed before that."""
    place.write(QUERY)
    killed = place.start(environment={VARIABLE: "after-commit:first@1"}).wait()
    assert killed.code == -signal.SIGKILL, killed.stderr
    assert not list((place.directory / "letters").glob("*.jsonl"))
    done = place.start().wait().succeeded()
    assert "are not counted" not in done.stderr
    letters = [line for path in (place.directory / "letters").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [json.loads(line)["row"]["id"] for line in letters] == [7]
    assert sorted(row["id"] for row in place.rows("first", "parquet")) == [n for n in range(20) if n != 7]
    assert sorted(row["id"] for row in place.rows("second", "parquet")) == list(range(20))
