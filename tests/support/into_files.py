"""From a topic into files: each message once in each of two sinks."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyarrow import parquet

from streamling.dev.topics import Message
from support.doubling_plugin import doubling
from support.harness import Child, Workspace
from support.kafka_broker import KafkaBroker

PARTITIONS, RATE = 4, 300
PIPELINE = """\
sources:
  events:
    type: kafka
    topic: {topic}
    data_format: json
    schema: {{id: int64, padding: string}}
    primary_key: id
    on_missing_offsets: earliest
transforms:
  chosen: {chosen}
sinks:
  parquet: {{type: file, from: chosen, path: disk/parquet, format: parquet, batch_flush_interval: 500ms}}
  json: {{type: file, from: chosen, path: disk/json, format: json, batch_flush_interval: 500ms}}
"""
FORMATS = ("parquet", "json")


SQL = '{type: sql, primary_key: id, sql: "SELECT id, id * 2 AS twice, padding FROM events WHERE id % 5 <> 2"}'
PLUGIN = "{type: double, from: events, primary_key: id}"


class IntoFiles:
    """The pipeline, what was sent to it, and its files below `disk`. Without Spark a plugin does what SQL would do."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, *, spark: bool = True) -> None:
        self._place, self._kafka, self._spark = place, kafka, spark
        self._topic = kafka.topic(partitions=PARTITIONS)
        self._partitions = PARTITIONS
        self._settings = {
            "KAFKA_SOURCE__BROKERS": kafka.brokers,
            "KAFKA_SOURCE__CONSUMER_GROUP_ID": f"group-{self._topic}",
            "KAFKA_SOURCE__SESSION_TIMEOUT_MS": 3000,
            "EPOCH__TAKEOVER_MS": 2000,
        }
        self._sent = 0
        self._counting = threading.Lock()
        self._sending = ExitStack()
        self._read: dict[tuple[Path, int, int], list[int]] = {}
        chosen = SQL if spark else PLUGIN
        plugin = doubling("id", "batch.filter(pa.array([n % 5 != 2 for n in batch.column('id').to_pylist()]))")
        place.write(PIPELINE.format(topic=self._topic, chosen=chosen), plugin=plugin)

    @property
    def disk(self) -> Path:
        """What the sinks write is below this directory."""
        return self._place.directory / "disk"

    def start(self, **settings: object) -> Child:
        return self._place.start(spark=self._spark, **{**self._settings, **settings})

    @contextmanager
    def producing(self) -> Iterator[None]:
        with self._sending:
            self._send()
            yield

    def add_partition(self) -> int:
        """Returns the number of partitions. Messages go to the new one, too."""
        self._sending.close()  # a producer does not learn at once that there is another partition
        self._kafka.add_partitions(self._topic, self._partitions + 1)
        self._partitions += 1
        self._send()
        return self._partitions

    def send_large(self, count: int, size: int) -> None:
        """A backlog of messages of this size."""
        self._kafka.produce(self._topic, (self._message(size) for _ in range(count)))

    def make_topic_anew(self, until: Callable[[Callable[[], bool], str], None]) -> None:
        """Once everything has arrived: delete the topic, create it again, and send more than it had before."""
        self._sending.close()
        until(lambda: not self.differences(), "everything, before the topic is deleted")
        self._kafka.topics.delete(self._topic)
        while self._kafka.topics.partitions(self._topic) is not None:
            time.sleep(0.2)
        self._kafka.topics.create(self._topic, self._partitions)
        self._kafka.produce(self._topic, (self._message() for _ in range(self._sent)))
        self._send()

    def arrival(self) -> Callable[[], bool]:
        target = self._sent - self._partitions
        return lambda: all(max(self._ids(format_), default=0) >= target for format_ in FORMATS)

    def differences(self) -> list[str]:
        owed = Counter(n for n in range(self._sent) if n % 5 != 2)
        problems = []
        for format_ in FORMATS:
            ids = Counter(self._ids(format_))
            missing, doubled = owed - ids, ids - owed
            if missing or doubled:
                some = f"missing {list(itertools.islice(missing, 5))}, too many {list(itertools.islice(doubled, 5))}"
                problems.append(f"{format_}: {missing.total()} missing, {doubled.total()} too many; {some}")
        return problems

    def _send(self) -> None:
        self._sending.enter_context(self._kafka.producing(self._topic, iter(self._message, None), RATE))

    def _message(self, size: int = 0) -> Message:
        with self._counting:
            n, self._sent = self._sent, self._sent + 1
        padding = {"padding": f"{n:08}" * (size // 8)} if size else {}
        return Message(json.dumps({"id": n, **padding}).encode(), partition=n % self._partitions)

    def _ids(self, format_: str) -> list[int]:
        found: list[int] = []
        for file in self._place.files(f"disk/{format_}", format_):
            state = file.stat()
            key = (file, state.st_mtime_ns, state.st_size)
            if key not in self._read:
                self._read[key] = _read_ids(file, format_)
            found += self._read[key]
        return found


def _read_ids(file: Path, format_: str) -> list[int]:
    if format_ == "parquet":
        ids: list[int] = parquet.read_table(file, columns=["id"])["id"].to_pylist()
        return ids
    return [json.loads(line)["id"] for line in file.read_text().splitlines()]
