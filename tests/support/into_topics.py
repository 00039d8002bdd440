"""From a topic into two topics on the same broker, each message once, in order per key.

`copied` gets every change; `latest` one change of each key per batch, of which the last one counts.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamling.dev.topics import Message
from streamling.testing.crash import VARIABLE
from support.crash_places import all_places
from support.doubling_plugin import doubling
from support.harness import Child, Workspace
from support.kafka_broker import KafkaBroker
from support.kafka_sink_samples import committed

SINKS = ("copied", "latest")
POINTS = all_places(SINKS)
PARTITIONS, KEYS, RATE = 4, 60, 80
PIPELINE = """\
sources:
  events:
    {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64, n: int64}}, primary_key: id}}
transforms:
  doubled: {{{doubled}, primary_key: id}}
sinks:
  copied:
    type: kafka
    from: events
    topic: {topic}.copied
    data_format: json
    topic_partitions: 3
    deduplicate: false
  latest: {{type: kafka, from: doubled, topic: {topic}.latest, data_format: json}}
"""
PLUGIN = "type: double, from: events"
SQL = "type: sql, sql: 'SELECT id, n, 2 * n AS twice FROM events'"
OPERATIONS = {"c": "i", "u": "u", "d": "d"}


class IntoTopics:
    """The pipeline, what was sent to it, and what its topics hold. Without Spark a plugin does what SQL would do."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, seed: int, *, spark: bool = False) -> None:
        self._place = place
        self._spark = spark
        self._kafka = kafka
        self._topic = kafka.topic(partitions=PARTITIONS)
        self._random = random.Random(seed)
        self._sent: list[tuple[int, str]] = []  # key and operation of change n
        self._settings = {
            "APPLICATION_ID": self._topic,
            "KAFKA_SOURCE__BROKERS": kafka.brokers,
            "KAFKA_SINK__BROKERS": kafka.brokers,
            "KAFKA_SOURCE__CONSUMER_GROUP_ID": f"group-{self._topic}",
            "KAFKA_SOURCE__SESSION_TIMEOUT_MS": 3000,
            "EPOCH__ROWS": 250,
            "EPOCH__TAKEOVER_MS": 2000,
        }
        pipeline = PIPELINE.format(topic=self._topic, doubled=SQL if spark else PLUGIN)
        place.write(pipeline, plugin=None if spark else doubling("n"))

    def start(self, crash: str | None = None, **settings: object) -> Child:
        environment = {VARIABLE: crash} if crash else {}
        return self._place.start(environment=environment, spark=self._spark, **{**self._settings, **settings})

    @contextmanager
    def producing(self) -> Iterator[None]:
        with self._kafka.producing(self._topic, self._changes(), RATE):
            yield

    def arrival(self) -> Callable[[], bool]:
        owed = len(self._sent)

        def arrived() -> bool:
            return len({row["n"] for row in self._rows("copied") if row["n"] < owed}) == owed

        return arrived

    def differences(self) -> list[str]:
        owed, found = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
        for n, (id_, operation) in enumerate(self._sent):
            owed[id_].append(f"{n}{OPERATIONS[operation]}")
        for row in self._rows("copied"):
            found[row["id"]].append(f"{row['n']}{row['_gs_op']}")
        wrong = [f"copied: {id_} {found[id_]} != {owed[id_]}" for id_ in sorted(owed) if found[id_] != owed[id_]]
        last = {row["id"]: f"{row['n']}{row['_gs_op']}" for row in self._rows("latest") if row["twice"] == 2 * row["n"]}
        wrong += [f"latest: {id_} {last.get(id_)} != {owed[id_][-1]}" for id_ in owed if last.get(id_) != owed[id_][-1]]
        numbers = [row["n"] for row in self._rows("latest")]
        if len(numbers) != len(set(numbers)):
            wrong.append("latest: a change is there twice")
        return wrong[:6]

    def _rows(self, sink: str) -> list[dict[str, int]]:
        topic = f"{self._topic}.{sink}"
        if self._kafka.topics.partitions(topic) is None:
            return []
        return [json.loads(message.value or b"") for message in committed(self._kafka.brokers, topic)]

    def _changes(self) -> Iterator[Message]:
        while True:
            id_ = self._random.randrange(KEYS)
            operation = self._random.choice("cuud")
            payload = json.dumps({"id": id_, "n": len(self._sent)}).encode()
            self._sent.append((id_, operation))
            yield Message(payload, headers=(("dbz.op", operation.encode()),), partition=id_ % PARTITIONS)
