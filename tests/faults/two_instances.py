"""Two processes of one pipeline share a topic of four partitions while they are killed in turn."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from harness import Child, Workspace
from kafka_broker import KafkaBroker

from streamling.dev.topics import Message

PARTITIONS = 4
RATE = 300
PIPELINE = """\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{id: int64}}, primary_key: id}}
transforms:
  chosen: {{type: sql, primary_key: id, sql: "SELECT id, id * 2 AS twice FROM events WHERE id % 5 <> 2"}}
sinks:
  parquet: {{type: file, from: chosen, path: parquet, format: parquet, batch_flush_interval: 500ms}}
  json: {{type: file, from: chosen, path: json, format: json, batch_flush_interval: 500ms}}
"""
FORMATS = ("parquet", "json")


class TwoInstances:
    """The pipeline, its topic with a producer that goes on, and the two processes."""

    def __init__(self, place: Workspace, kafka: KafkaBroker) -> None:
        self._place, self._kafka = place, kafka
        self._topic = kafka.topic(partitions=PARTITIONS)
        self._settings: dict[str, object] = {
            "KAFKA_SOURCE__BROKERS": kafka.brokers,
            "KAFKA_SOURCE__CONSUMER_GROUP_ID": f"group-{self._topic}",
        }
        self._sent = 0
        place.write(PIPELINE.format(topic=self._topic))

    def start(self) -> Child:
        return self._place.start(**self._settings)

    def take_turns(self, kills: int, suspended_s: float) -> list[str]:
        """What is different in the end from each message once in each sink."""
        with self._producing():
            both = [self.start(), self.start()]
            for child in both:
                child.until(lambda child=child: "got partitions" in child.stderr, "partitions of its own")  # type: ignore[misc]
            for turn in range(kills):
                self._await_progress()
                both[turn % 2].signal(signal.SIGKILL)
                both[turn % 2].wait()
                both[turn % 2] = self.start()
            self._await_progress()
            self._place.suspend(both[0])
            time.sleep(suspended_s)
            both[0].signal(signal.SIGCONT)
            self._await_progress()
        self._await(lambda: not self._differences(), 180)
        for child in both:
            child.signal(signal.SIGTERM)
            child.wait().succeeded()
        return self._differences()

    @contextmanager
    def _producing(self) -> Iterator[None]:
        ended = threading.Event()

        def produce() -> None:
            while not ended.is_set():
                numbers = range(self._sent, self._sent + RATE // 10)
                messages = [Message(b'{"id": %d}' % n, partition=n % PARTITIONS) for n in numbers]
                self._sent += self._kafka.produce(self._topic, messages)
                ended.wait(0.1)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _await_progress(self) -> None:
        """What is there by now arrives, in whichever process: so both have worked, or one in place of both."""
        target = self._sent
        self._await(lambda: all(max(self._ids(f), default=0) >= target for f in FORMATS), 120)

    def _await(self, condition: object, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():  # type: ignore[operator]
            if time.monotonic() > deadline:
                return
            time.sleep(0.5)

    def _ids(self, format_: str) -> Counter[int]:
        return Counter(row["id"] for row in self._place.rows(format_, format_))

    def _differences(self) -> list[str]:
        owed = Counter(n for n in range(self._sent) if n % 5 != 2)
        found = []
        for format_ in FORMATS:
            ids = self._ids(format_)
            missing, doubled = owed - ids, ids - owed
            if missing or doubled:
                some = f"missing {list(itertools.islice(missing, 5))}, too many {list(itertools.islice(doubled, 5))}"
                found.append(f"{format_}: {missing.total()} missing, {doubled.total()} too many; {some}")
        return found
