"""From a topic into Postgres, killed at every point, with the database taken away, suspended: tables equal the model.

Two tables: one kept by key, with inserts, updates and deletes in their order; one without a key, where a row that is
written twice is there twice.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter

import pytest
from harness import Child, Workspace
from kafka_broker import KafkaBroker
from postgres_server import Database, PostgresServer

from streamling.dev.topics import Message
from streamling.testing.crash import POINTS, VARIABLE

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

SINKS = ("current", "audit")
PLACES = (
    "after-record",
    *(f"{point}:{sink}" for point in ("after-write", "before-commit", "after-commit") for sink in SINKS),
    "before-finalize",
    "after-finalize",
    "before-group-commit",
)
PARTITIONS, KEYS = 2, 50
PIPELINE = """\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64, n: int64}}}}
transforms:
  doubled: {{type: sql, primary_key: id, sql: "SELECT id, n, n * 2 AS twice FROM events"}}
sinks:
  current: {{type: postgres, from: doubled, schema: public, table: current, batch_flush_interval: 200ms}}
  audit: {{type: postgres, from: events, schema: public, table: audit, batch_flush_interval: 200ms}}
"""


class Stage:
    """The pipeline, what was sent to it, and the two tables."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, database: Database) -> None:
        self._place, self._kafka, self._database = place, kafka, database
        self._topic = kafka.topic(partitions=PARTITIONS)
        self._random = random.Random(7)
        self.sent: list[tuple[int, str]] = []
        """Key and operation of message n."""
        place.write(PIPELINE.format(topic=self._topic))
        database.execute("CREATE TABLE audit (id bigint, n bigint)")

    def send(self, count: int) -> None:
        """The last message of each partition is no deletion: when it is there, all before it are."""
        messages = []
        for left in reversed(range(count)):
            n, id_, operation = len(self.sent), self._random.randrange(KEYS), self._random.choice("cuud")
            if left < PARTITIONS:
                id_, operation = left, "c"
            self.sent.append((id_, operation))
            payload = json.dumps({"id": id_, "n": n}).encode()
            messages.append(Message(payload, headers=(("dbz.op", operation.encode()),), partition=id_ % PARTITIONS))
        self._kafka.produce(self._topic, messages)

    def start(self, **more: object) -> Child:
        environment = {VARIABLE: str(more.pop("crash"))} if "crash" in more else {}
        settings = {"KAFKA_SOURCE__BROKERS": self._kafka.brokers, "EPOCH__ROWS": 100, **self._database.settings()}
        return self._place.start(environment=environment, **settings, **more)

    def model(self) -> list[tuple[int, int, int]]:
        rows: dict[int, int] = {}
        for n, (id_, operation) in enumerate(self.sent):
            if operation == "d":
                rows.pop(id_, None)
            else:
                rows[id_] = n
        return [(id_, n, 2 * n) for id_, n in sorted(rows.items())]

    def arrived(self) -> Counter[int]:
        return Counter(n for (n,) in self._database.rows("SELECT n FROM audit"))

    def audited(self) -> Counter[int]:
        """Without a key nothing can be deleted, so deletions are left out."""
        return Counter(n for n, (_, operation) in enumerate(self.sent) if operation != "d")

    def complete(self) -> bool:
        return len(self.arrived()) >= len(self.audited())

    def assert_exact(self) -> None:
        assert self.arrived() == self.audited()
        assert self._database.rows("SELECT id, n, twice FROM current ORDER BY id") == self.model()


@pytest.fixture
def stage(place: Workspace, kafka: KafkaBroker, postgres: PostgresServer) -> Stage:
    return Stage(place, kafka, postgres.database())


def finish(stage: Stage, child: Child) -> None:
    child.until(stage.complete, "all rows")
    child.signal(signal.SIGTERM)
    child.wait().succeeded()
    stage.assert_exact()


def test_every_point_of_the_protocol_is_tried() -> None:
    assert {place.partition(":")[0] for place in PLACES} == set(POINTS)


def test_kills_at_every_point_leave_the_tables_exact(stage: Stage) -> None:
    for number, point in enumerate(PLACES):
        stage.send(300)
        killed = stage.start(crash=f"{point}@{1 + number % 2}").wait()
        assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"
    finish(stage, stage.start())


def test_a_database_that_is_killed_or_restarted_comes_back_to_exact_tables(
    stage: Stage, postgres: PostgresServer
) -> None:
    stage.send(500)
    child = stage.start()
    child.until_epochs(2)
    for take_away in (postgres.kill, postgres.stop):
        stage.send(500)
        take_away()
        time.sleep(2)
        postgres.start()
        child.until(stage.complete, "all rows")
    assert "recovered after" in child.stderr
    finish(stage, child)


def test_a_suspended_owner_wakes_up_to_another_and_writes_nothing_twice(place: Workspace, stage: Stage) -> None:
    stage.send(300)
    first = stage.start()
    first.until_epochs(1)
    stage.send(600)
    place.suspend(first)
    second = stage.start()
    second.until(stage.complete, "all rows", timeout=180)
    stage.send(300)
    first.signal(signal.SIGCONT)
    second.until(stage.complete, "all rows")
    time.sleep(2)
    first.signal(signal.SIGTERM)
    first.wait().succeeded()
    finish(stage, second)
