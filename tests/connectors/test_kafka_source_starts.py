"""Where a partition starts that has no stored position: where the options say, or at its beginning if it was added."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from streamling.clients.kafka import Broker
from streamling.dev.topics import Message
from streamling.engine.protocol.state import MemoryState
from streamling.errors import SOURCE_FAILED
from streamling.spec.settings.blocks import KafkaSourceSettings
from support.kafka_broker import KafkaBroker
from support.kafka_source_samples import PLENTY, divided, eventually, everything, positions_of, read, source

pytestmark = pytest.mark.servers

JSON = ", data_format: json, schema: {n: int64}"
LATEST = f"{JSON}, starting_offsets: latest"


def found(rows: list[Any]) -> list[Any]:
    return sorted(row["n"] for row in rows)


def send(kafka: KafkaBroker, topic: str, partition: int, *values: int) -> None:
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=partition) for n in values])


@pytest.mark.parametrize("start", ["latest", "a time"])
@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "older state"])
def test_a_partition_that_was_added_is_read_from_its_beginning_after_a_restart(
    kafka: KafkaBroker, start: str, is_recorded: bool
) -> None:
    topic = kafka.topic()
    send(kafka, topic, 0, 0)
    milliseconds = int((time.time() + 3600) * 1000)
    options = LATEST if start == "latest" else f"{JSON}, starting_offsets: '{milliseconds}'"
    state = MemoryState()
    with source(kafka.brokers, topic, options, state=state) as events:
        first = events.offer(PLENTY)
        assert read(events, first) == []
    kafka.add_partitions(topic, 2)
    send(kafka, topic, 1, 1, 2, 3)
    stored = positions_of(first)
    with source(kafka.brokers, topic, options, stored, state=state if is_recorded else None) as events:
        assert found(everything(events)) == [1, 2, 3]


def test_another_process_reads_a_partition_that_was_added_from_its_beginning(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    send(kafka, topic, 0, 0)
    state, group = MemoryState(), uuid.uuid4().hex
    with source(kafka.brokers, topic, LATEST, state=state, consumer_group_id=group) as first:
        stored = positions_of(first.offer(PLENTY))
        kafka.add_partitions(topic, 2)
        send(kafka, topic, 1, 1, 2, 3)
        with source(kafka.brokers, topic, LATEST, state=state, consumer_group_id=group, own=False) as second:
            both = (first, second)
            for events in both:
                divided(events, 1)
                events.open(stored)
            assert found([row for events in both for row in eventually(events, 3, seconds=1)]) == [1, 2, 3]


def test_a_partition_whose_first_owner_stored_nothing_starts_where_latest_was(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    send(kafka, topic, 0, 0)
    send(kafka, topic, 1, 1, 2, 3)
    state = MemoryState()
    with source(kafka.brokers, topic, LATEST, state=state) as events:
        stored = positions_of(events.offer(PLENTY))
    del stored[f"events:{topic}:1"]
    send(kafka, topic, 1, 4, 5)
    with source(kafka.brokers, topic, LATEST, stored, state=state) as events:
        assert found(everything(events)) == [4, 5]


def test_offsets_of_a_partition_that_was_just_added_are_found(kafka: KafkaBroker) -> None:
    """The client remembers for a quarter of an hour how many partitions a topic had."""
    topic = kafka.topic(partitions=1)
    broker = Broker(KafkaSourceSettings(brokers=kafka.brokers), topic, SOURCE_FAILED)
    assert broker.end([0]) == {0: 0}
    kafka.add_partitions(topic, 2)
    assert broker.end([1]) == {1: 0}
    kafka.add_partitions(topic, 3)
    assert broker.end([0, 2]) == {0: 0, 2: 0}


def test_offsets_of_a_partition_that_no_broker_leads_yet_are_found(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker answers that a partition was added before it leads it."""
    monkeypatch.setattr("streamling.clients.kafka._ELECTION_SECONDS", 60)
    topic = kafka.topic(partitions=1)
    broker = Broker(KafkaSourceSettings(brokers=kafka.brokers), topic, SOURCE_FAILED)
    for count in range(2, 22):
        kafka.request_partitions(topic, count)
        assert broker.end([count - 1]) == {count - 1: 0}
