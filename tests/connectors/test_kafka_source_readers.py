"""How many read a topic side by side: as many as the machine can, or as the source says."""

from __future__ import annotations

import logging
import time

import pytest

from streamling.connector import Room
from streamling.dev.topics import Message
from streamling.engine.data.capacity import Caps
from streamling.engine.data.readahead import ReadAhead
from support.kafka_broker import KafkaBroker
from support.kafka_source_samples import everything, source

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
            assert events.capabilities.max_readers == readers


def test_more_readers_than_partitions_are_warned_about(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = topic_of_three(kafka)
    with caplog.at_level(logging.WARNING), source(kafka.brokers, topic, f"{JSON}, parallelism: 4") as events:
        assert len(everything(events)) == 30
    assert caplog.messages == [
        f"source Events: parallelism is 4, but only 3 tasks can read: it has 3 partitions of topic '{topic}'"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING), source(kafka.brokers, topic, f"{JSON}, parallelism: 3") as events:
        assert len(everything(events)) == 30
    assert caplog.messages == []


def test_messages_longer_than_those_before_them_do_not_fill_the_memory(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    long = b'{"n": %d, "text": "' + b"x" * 1_000_000 + b'"}'
    messages = [b'{"n": %d}' % n for n in range(100)] + [long.replace(b"%d", b"%d" % n) for n in range(100, 140)]
    kafka.produce(topic, [Message(value, partition=place % 2) for place, value in enumerate(messages)])
    caps = Caps(
        driver_rows=20_000,
        rows=20_000,
        bytes=4 << 20,
        large_bytes=4 << 20,
        parts=1,
        part_rows=10_000,
        part_bytes=None,
    )
    with source(kafka.brokers, topic, ", data_format: json, schema: {n: int64, text: string}") as events:
        reader = ReadAhead("events", events, lambda: caps, poll_s=0.01, wake=lambda: None)
        reader.take_assignment()
        reader.start({})
        numbers, most, ends = [], 0, {}
        while len(numbers) < len(messages):
            taken = reader.take(1)
            for slice_ in taken.slices if taken else ():
                assert slice_.start == ends.get(slice_.key)
                ends[slice_.key] = slice_.end
            batches = taken.batches or () if taken else ()
            numbers += [n for batch in batches for n in batch.column("n").to_pylist()]
            most = max(most, sum(batch.nbytes for batch in batches))
            time.sleep(0.05)
        reader.stop()
    assert sorted(numbers) == list(range(140))
    # A chunk is decoded as a whole, and has sixteen megabytes at the most; all of them have forty.
    assert most < 24 << 20
    assert {end["offset"] for end in ends.values() if isinstance(end, dict)} == {70}
