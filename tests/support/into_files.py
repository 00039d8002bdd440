"""From a topic into files: each message once in each of two sinks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from streamling.dev.topics import Message
from support.doubling_plugin import doubling
from support.harness import Child, Workspace
from support.kafka_broker import KafkaBroker

PARTITIONS, RATE = 4, 300
PIPELINE = """\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64}}, primary_key: id}}
transforms:
  chosen: {chosen}
sinks:
  parquet: {{type: file, from: chosen, path: parquet, format: parquet, batch_flush_interval: 500ms}}
  json: {{type: file, from: chosen, path: json, format: json, batch_flush_interval: 500ms}}
"""
FORMATS = ("parquet", "json")


SQL = '{type: sql, primary_key: id, sql: "SELECT id, id * 2 AS twice FROM events WHERE id % 5 <> 2"}'
PLUGIN = "{type: double, from: events, primary_key: id}"


class IntoFiles:
    """The pipeline, what was sent to it, and its files. Without Spark a plugin does what SQL would do."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, *, spark: bool = True) -> None:
        self._place, self._kafka, self._spark = place, kafka, spark
        self._topic = kafka.topic(partitions=PARTITIONS)
        self._settings = {
            "KAFKA_SOURCE__BROKERS": kafka.brokers,
            "KAFKA_SOURCE__CONSUMER_GROUP_ID": f"group-{self._topic}",
            "KAFKA_SOURCE__SESSION_TIMEOUT_MS": 3000,
            "EPOCH__TAKEOVER_MS": 2000,
        }
        self._sent = 0
        chosen = SQL if spark else PLUGIN
        plugin = doubling("id", "batch.filter(pa.array([n % 5 != 2 for n in batch.column('id').to_pylist()]))")
        place.write(PIPELINE.format(topic=self._topic, chosen=chosen), plugin=plugin)

    def start(self) -> Child:
        return self._place.start(spark=self._spark, **self._settings)

    def producing(self) -> AbstractContextManager[None]:
        return self._kafka.producing(self._topic, self._messages(), RATE)

    def arrival(self) -> Callable[[], bool]:
        target = self._sent - PARTITIONS
        return lambda: all(max(self._ids(format_), default=0) >= target for format_ in FORMATS)

    def differences(self) -> list[str]:
        owed = Counter(n for n in range(self._sent) if n % 5 != 2)
        problems = []
        for format_ in FORMATS:
            ids = self._ids(format_)
            missing, doubled = owed - ids, ids - owed
            if missing or doubled:
                some = f"missing {list(itertools.islice(missing, 5))}, too many {list(itertools.islice(doubled, 5))}"
                problems.append(f"{format_}: {missing.total()} missing, {doubled.total()} too many; {some}")
        return problems

    def _messages(self) -> Iterator[Message]:
        while True:
            n, self._sent = self._sent, self._sent + 1
            yield Message(b'{"id": %d}' % n, partition=n % PARTITIONS)

    def _ids(self, format_: str) -> Counter[int]:
        return Counter(n for table in self._place.tables(format_, format_) for n in table["id"].to_pylist())
