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
