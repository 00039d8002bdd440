"""How many read a topic side by side: as many as the machine can, or as the source says."""

from __future__ import annotations

import logging

import pytest
from kafka_broker import KafkaBroker
from kafka_source_samples import everything, source

from streamling.dev.topics import Message
from streamling.plugin.contract import Room

pytestmark = pytest.mark.servers

JSON = ", data_format: json, schema: {n: int64}"
WIDE = Room(1000, parts=6, part_rows=1)


def topic_of_three(kafka: KafkaBroker) -> str:
    topic = kafka.topic(partitions=3)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 3) for n in range(30)])
    return topic


def test_partitions_are_cut_unless_the_source_says_how_many_may_read(kafka: KafkaBroker) -> None:
    topic = topic_of_three(kafka)
    for option, parts, readers in (("", 2, None), (", parallelism: 2", 1, 2)):
        with source(kafka.brokers, topic, JSON + option) as events:
            offer = events.offer(WIDE)
            assert offer is not None
            assert [len(slice_.parts) for slice_ in offer.slices] == [parts] * 3
            assert events.readers == readers


def test_more_readers_than_partitions_are_warned_about(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = topic_of_three(kafka)
    with caplog.at_level(logging.WARNING), source(kafka.brokers, topic, f"{JSON}, parallelism: 4") as events:
        assert len(everything(events)) == 30
    assert caplog.messages == [
        f"source Events: parallelism is 4, but it has 3 partitions of topic '{topic}' to read, and no more readers"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING), source(kafka.brokers, topic, f"{JSON}, parallelism: 3") as events:
        assert len(everything(events)) == 30
    assert caplog.messages == []
