"""What `batch_size`, `batch_flush_interval` and `parallelism` of a Kafka source do to a run."""

from __future__ import annotations

import re
import time

import pytest

from streamling.dev.topics import Message
from support.harness import Workspace
from support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.servers]

PIPELINE = """\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, schema: {{n: int64}}, {options}}}
sinks:
  out: {{type: file, from: events, path: out, format: parquet}}
"""


def numbers(first: int, end: int) -> list[Message | bytes | str | None]:
    return [b'{"n": %d}' % n for n in range(first, end)]


def test_an_epoch_waits_until_its_source_has_gathered_enough(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 50))
    place.write(PIPELINE.format(topic=topic, options="batch_size: 50, batch_flush_interval: 1h"))
    settings = {"CHECKPOINT_INTERVAL_SEC": 3600, "NUM_RECORDS_BEFORE_STOP": 100}
    child = place.start_warm(KAFKA_SOURCE__BROKERS=kafka.brokers, **settings)
    child.until_epochs(1)
    kafka.produce(topic, numbers(50, 80))
    time.sleep(2)  # rows that nobody gathers are an epoch after a tenth of a second
    assert child.epochs == 1
    kafka.produce(topic, numbers(80, 100))
    finished = child.wait().succeeded()
    assert re.findall(r"Epoch finalized: number=\d+ rows=(\d+)", finished.stderr) == ["50", "50"]
    assert [row["n"] for row in place.rows("out", "parquet")] == list(range(100))


def test_as_many_tasks_as_the_source_says_share_its_partitions(place: Workspace, kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=5)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 5) for n in range(100)])
    place.write(PIPELINE.format(topic=topic, options="parallelism: 2"))
    settings = {"EPOCH__DRIVER_ROWS": 0, "NUM_RECORDS_BEFORE_STOP": 100}
    place.run(KAFKA_SOURCE__BROKERS=kafka.brokers, **settings).succeeded()
    assert len(place.files("out", "parquet")) == 2  # each task writes one
    assert sorted(row["n"] for row in place.rows("out", "parquet")) == list(range(100))
