"""The broker of the local stack keeps what it is given, whatever happens to it."""

from __future__ import annotations

import itertools
import time
import uuid

import pytest

from streamling.dev.topics import Message
from streamling.errors import TOPIC_FAILED, StreamlingError
from support.kafka_broker import KafkaBroker
from support.local_stack import LocalServer, local_stack

pytestmark = pytest.mark.servers


def test_messages_come_back_as_they_were_sent(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    sent = Message(b"one", b"k", (("dbz.op", b"u"), ("dbz.op", b"d"), ("empty", None)), 1, None, 1_600_000_000_123)
    kafka.produce(topic, [sent, Message(None, b"gone", partition=0)])
    last, first = sorted(kafka.consume(topic), key=lambda message: message.partition or 0)
    assert first == Message(b"one", b"k", sent.headers, 1, 0, 1_600_000_000_123)
    assert (last.value, last.key, last.offset) == (None, b"gone", 0)


def test_equal_keys_go_to_one_partition_in_order(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=3)
    kafka.produce(topic, [Message(str(n).encode(), str(n % 5).encode()) for n in range(50)])
    found = kafka.consume(topic)
    assert len(found) == 50
    for key in {message.key for message in found}:
        own = [message for message in found if message.key == key]
        assert len({message.partition for message in own}) == 1
        assert [int(message.value or b"") for message in own] == sorted(int(message.value or b"") for message in own)


def test_a_killed_broker_comes_back_with_its_messages(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    kafka.kill()
    kafka.start()
    kafka.produce(topic, ["after"])
    assert [message.value for message in kafka.consume(topic)] == [b"before", b"after"]


def test_a_reader_that_follows_outlives_a_restart(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    followed = kafka.topics.read(topic, follow=True)
    assert next(followed).value == b"before"
    kafka.restart()
    kafka.produce(topic, ["after"])
    assert next(followed).value == b"after"


def test_the_last_messages_are_the_newest_of_all_partitions(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [Message(b"%d" % n, partition=n % 2, timestamp=1_000_000 + n) for n in range(9)])
    assert [message.value for message in kafka.topics.read(topic, last=4)] == [b"5", b"6", b"7", b"8"]
    assert list(kafka.topics.read(topic, last=0)) == []


def test_a_rate_is_kept(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    began = time.monotonic()
    assert kafka.topics.send(topic, itertools.repeat(Message(b"x"), 11), rate=10) == 11
    assert time.monotonic() - began >= 1


def test_a_topic_that_is_not_there_is_named_with_the_nearest_that_is(kafka: KafkaBroker) -> None:
    topic = kafka.topic("orders")
    with pytest.raises(StreamlingError) as caught:
        list(kafka.topics.read(topic[:-1]))
    assert caught.value.condition is TOPIC_FAILED
    assert topic in (caught.value.hint or "")


def test_a_topic_keeps_its_number_of_partitions(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.topics.create(topic, 2)
    with pytest.raises(StreamlingError, match="with 2 partitions, not 3"):
        kafka.topics.create(topic, 3)


def test_a_message_that_is_too_large_is_an_error(kafka: KafkaBroker) -> None:
    topic = kafka.topic(max_message_bytes="1000")
    with pytest.raises(StreamlingError, match="refused a message") as caught:
        kafka.produce(topic, ["x" * 5000])
    assert caught.value.condition is TOPIC_FAILED


def test_an_id_that_looks_like_an_option_is_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """One random id in 64 begins with a dash."""
    dashed = uuid.UUID(bytes=b"\xf8" + bytes(15))
    monkeypatch.setattr("streamling.dev.kafka.uuid.uuid4", lambda: dashed)
    with local_stack() as stack:
        broker = LocalServer(stack, "kafka")
        assert "cluster.id=-AAAA" in (broker.site.directory / "data" / "meta.properties").read_text()
