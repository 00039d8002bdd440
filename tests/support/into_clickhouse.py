"""From a topic into three ClickHouse tables, and what they must contain.

One table keeps the last version of each key, one keeps every change, in which a row that is written twice is there
twice, and from the last one deletes are removed.
"""

from __future__ import annotations

import json
import random
from collections import Counter

from streamling.dev.topics import Message
from streamling.testing.crash import VARIABLE
from support.clickhouse_server import ClickHouseDatabase
from support.crash_places import all_places
from support.harness import Child, Workspace
from support.kafka_broker import KafkaBroker

# Without a consumer group nothing is committed to it. To the protocol, `current` is like `history`.
POINTS = tuple(point for point in all_places(("history", "mutated")) if point != "before-group-commit")
KEYS = 40
_PIPELINE = """\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64, n: int64}}}}
sinks:
  current: {{type: clickhouse, from: events, table: current, primary_key: id, version_column_name: n, {every}}}
  history: {{type: clickhouse, from: events, table: history, primary_key: id, deduplicate: false, {every}}}
  mutated: {{type: clickhouse, from: events, table: mutated, primary_key: id, append_only_mode: false, {every}}}
"""
_HISTORY = (
    "CREATE TABLE history (id Int64, n Int64, is_deleted UInt8) ENGINE = MergeTree ORDER BY id"
    " SETTINGS non_replicated_deduplication_window = 1000"
)


class IntoClickHouse:
    """The pipeline, the changes that were sent to it, and its tables."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, database: ClickHouseDatabase, *, seed: int) -> None:
        self._place = place
        self._kafka = kafka
        self._database = database
        self._random = random.Random(seed)
        self._topic = kafka.topic(partitions=2)
        self._sent: list[tuple[int, str]] = []
        self._settings = {"KAFKA_SOURCE__BROKERS": kafka.brokers, "EPOCH__ROWS": 40, **database.settings()}
        database.execute(_HISTORY)
        place.write(_PIPELINE.format(topic=self._topic, every="batch_size: 15, batch_flush_interval: 50ms"))

    def start(self, crash: str | None = None) -> Child:
        environment = {VARIABLE: crash} if crash else {}
        return self._place.start(environment=environment, spark=False, **self._settings)

    def send(self, changes: int) -> None:
        messages = []
        for _ in range(changes):
            id_, operation = self._random.randrange(KEYS), self._random.choice("cuud")
            payload = json.dumps({"id": id_, "n": len(self._sent)}).encode()
            messages.append(Message(payload, headers=(("dbz.op", operation.encode()),), partition=id_ % 2))
            self._sent.append((id_, operation))
        self._kafka.produce(self._topic, messages)

    def differences(self) -> list[str]:
        live: dict[int, int] = {}
        for n, (id_, operation) in enumerate(self._sent):
            live.pop(id_, None)
            if operation != "d":
                live[id_] = n
        found = Counter(n for (n,) in self._database.rows("SELECT n FROM history"))
        problems = [f"history: {n} is there {found[n]} times" for n in range(len(self._sent)) if found[n] != 1]
        for table in ("current", "mutated"):
            held = dict(self._database.rows(f"SELECT id, n FROM {table} FINAL"))
            wrong = [id_ for id_ in range(KEYS) if held.get(id_) != live.get(id_)]
            problems += [f"{table}: {id_} has {held.get(id_)} instead of {live.get(id_)}" for id_ in wrong]
        return problems[:8]
