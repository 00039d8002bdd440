"""Offsets without a message: transactions that were aborted or are open, expired and compacted messages."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from streamling.connector import Offer, Room
from streamling.dev.topics import Message
from streamling.errors import OFFSETS_GONE, StreamlingError
from streamling.sources.kafka.source import KafkaSource
from support.avro_frames import framed
from support.kafka_broker import COMPACTING, KafkaBroker
from support.kafka_source_samples import PLENTY, eventually, everything, read, source, transaction
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers

JSON = ", data_format: json, schema: {n: int64}"


def numbers(*values: int) -> list[Message | bytes | str | None]:
    return [b'{"n": %d}' % n for n in values]


def found(rows: list[Any]) -> list[Any]:
    return [row["n"] for row in rows]


def recalled(events: KafkaSource, offer: Offer | None) -> Offer:
    """An offer as the next run gets it from the record of its epoch."""
    assert offer is not None
    return Offer(events.recall([type(s).from_json(json.loads(json.dumps(s.to_json()))) for s in offer.slices]))


def offsets(events: KafkaSource) -> int:
    """How many are passed."""
    extent = events.extent()
    return extent.done if extent else 0


def up_to(events: KafkaSource, offset: int) -> list[Any]:
    rows: list[Any] = []
    deadline = time.monotonic() + 10
    while offsets(events) < offset and time.monotonic() < deadline:
        rows += everything(events)
        time.sleep(0.05)
    return rows


def test_aborted_transactions_leave_no_rows_wherever_slices_are_cut(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(1))
    with transaction(kafka.brokers, topic, [b'{"n": %d}' % n for n in (2, 3, 4)], commit=False):
        pass
    kafka.produce(topic, numbers(5))
    with transaction(kafka.brokers, topic, [b'{"n": 6}'], commit=False):
        pass
    for rows in (1, 2, 3, 1000):
        with source(kafka.brokers, topic, JSON) as events:
            room = Room(rows, parts=1, part_rows=1)
            assert found(everything(events, room)) == [1, 5]
            assert offsets(events) == 8  # two messages, four that were aborted, the marks of both transactions


def test_nothing_is_offered_again_behind_the_mark_of_a_transaction(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    with source(kafka.brokers, topic, JSON) as events:
        assert events.offer(PLENTY) is None
        for commit in (False, True):
            with transaction(kafka.brokers, topic, [], commit=commit):
                pass
            with transaction(kafka.brokers, topic, [b'{"n": 1}'], commit=commit):
                pass
            assert found(up_to(events, 4 if commit else 2)) == [1] * commit
            began = time.monotonic()
            assert [events.offer(PLENTY) for _ in range(20)] == [None] * 20
            assert time.monotonic() - began < 2


def test_rows_behind_a_transaction_that_was_left_open_wait_for_its_end(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(1))
    abandoned = transaction(kafka.brokers, topic, [b'{"n": 2}'], commit=False, timeout_ms=1000)
    with source(kafka.brokers, topic, JSON) as events:
        abandoned.__enter__()  # nobody ends it but the broker, which looks every ten seconds
        kafka.produce(topic, numbers(3))
        assert found(everything(events)) == [1]
        assert found(eventually(events, 1, seconds=40)) == [3]


def test_expired_offsets_end_the_read_or_are_passed_over(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(*range(10)))
    with (
        source(kafka.brokers, topic, JSON) as strict,
        source(kafka.brokers, topic, f"{JSON}, on_missing_offsets: earliest") as lax,
    ):
        offers = [events.offer(PLENTY) for events in (strict, lax)]
        kafka.expire(topic, before=4)
        with pytest.raises(StreamlingError) as caught:
            read(strict, offers[0])
        assert caught.value.condition is OFFSETS_GONE
        assert caught.value.node == "Events"
        text = f"partition 0 of topic '{topic}' no longer has all offsets from 0 to 10: it has 4 up to 10"
        assert text in caught.value.message
        assert found(read(lax, offers[1])) == [4, 5, 6, 7, 8, 9]
        assert f"{text}; 4 offsets are skipped" in caplog.text
        kafka.expire(topic, before=10)
        assert read(lax, offers[1]) == []
        kafka.produce(topic, numbers(10))
        assert found(eventually(lax, 1)) == [10]


def test_a_recorded_slice_is_read_again_as_far_as_it_is_there(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(*range(10)))
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(Room(8, parts=2, part_rows=1))
    with source(kafka.brokers, topic, JSON) as events:
        assert found(read(events, recalled(events, offer))) == list(range(8))
    assert "no longer" not in caplog.text
    kafka.expire(topic, before=5)
    with source(kafka.brokers, topic, JSON) as events:
        again = recalled(events, offer)
        assert found(read(events, again)) == [5, 6, 7]
        assert "no longer has 4 of its offsets 0 to 4: it has 5 up to 10" in caplog.text
        assert "no longer has 1 of its offsets 4 to 8" in caplog.text
        # Also what expires at the last moment.
        kafka.expire(topic, before=7)
        assert found(read(events, again)) == [7]
        kafka.expire(topic, before=10)
        assert read(events, again) == []
        assert read(events, recalled(events, offer)) == []


def test_a_recorded_slice_of_a_topic_made_anew_does_not_hang(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(10)])
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(PLENTY)
    kafka.topics.delete(topic)
    kafka.topics.create(topic, 1)
    with source(kafka.brokers, topic, JSON) as events:
        assert read(events, recalled(events, offer)) == []
    assert caplog.text.count("no longer has 5 of its offsets 0 to 5: the topic was deleted and created again") == 2


def test_a_topic_cut_short_under_a_reader_is_an_error(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.sources.kafka.reader._STALLED_S", 1.0)
    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2))
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        (slice_,) = offer.slices
        beyond = Offer((replace(slice_, parts=([0, 0, 5, None, False],)),))
        with pytest.raises(StreamlingError) as caught:
            read(events, beyond)
        assert caught.value.condition is OFFSETS_GONE
        assert "it has 0 up to 2" in caught.value.message


def test_compacted_messages_are_missing_when_a_slice_is_read_again(kafka: KafkaBroker) -> None:
    topic = kafka.topic(**COMPACTING)
    messages: list[Message | bytes | str | None]
    messages = [Message(b'{"n": %d}' % n, key=b"even" if n % 2 == 0 else b"odd") for n in range(8)]
    kafka.produce(topic, messages)
    with source(kafka.brokers, topic, JSON) as events:
        whole = events.offer(Room(6, parts=1, part_rows=1))
        assert found(read(events, whole)) == [0, 1, 2, 3, 4, 5]
    time.sleep(0.2)
    kafka.produce(topic, [Message(b'{"n": 8}', key=b"even")])
    kafka.compact(topic, left=3)  # 6 and 7 of their keys, and 8, which is too new
    with source(kafka.brokers, topic, JSON) as events:
        assert read(events, recalled(events, whole)) == []
        assert found(everything(events, Room(2, parts=1, part_rows=1))) == [6, 7, 8]


VERSION = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def versioned(default: int) -> str:
    more = {"name": "more", "type": "int", "default": default}
    return json.dumps({**VERSION, "fields": [*VERSION["fields"], more]})


def test_a_recorded_slice_is_read_again_with_the_schema_of_its_first_reading(
    kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic()
    plain = json.dumps(VERSION)
    old = schema_registry.register(f"{topic}-value", plain)
    kafka.produce(topic, [framed(old, plain, {"id": n}) for n in range(3)])
    connection = {"registry_url": schema_registry.url}
    with source(kafka.brokers, topic, **connection) as events:
        without = events.offer(PLENTY)
    schema_registry.register(f"{topic}-value", versioned(1))
    with source(kafka.brokers, topic, **connection) as events:
        first = events.offer(PLENTY)
        assert [row["more"] for row in read(events, first) if isinstance(row, dict)] == [1, 1, 1]
    newest = schema_registry.register(f"{topic}-value", versioned(2))
    kafka.produce(topic, [framed(newest, versioned(2), {"id": 3, "more": 3})])
    with source(kafka.brokers, topic, **connection) as events:
        rows = read(events, recalled(events, first))
        assert [row["more"] for row in rows if isinstance(row, dict)] == [1, 1, 1]
        # The columns are others by now, and so rows are what they would be now.
        rows = read(events, recalled(events, without))
        assert [row["more"] for row in rows if isinstance(row, dict)] == [2, 2, 2]
        rows = everything(events)
        assert [row["more"] for row in rows if isinstance(row, dict)] == [2, 2, 2, 3]


def test_a_recorded_slice_whose_schema_is_gone_is_read_with_the_one_of_now(
    kafka: KafkaBroker, schema_registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    plain = json.dumps(VERSION)
    id_ = schema_registry.register(f"{topic}-value", plain)
    kafka.produce(topic, [framed(id_, plain, {"id": 5})])
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        (slice_,) = offer.slices
        (part,) = slice_.parts
        assert isinstance(part, list)
        assert part[:5] == [0, 0, 1, id_, False]
        unknown = Offer((replace(slice_, parts=([0, 0, 1, 987654, False],)),))
        with caplog.at_level(logging.WARNING):
            assert read(events, recalled(events, unknown)) == [{"id": 5, "_gs_op": "i"}]
    assert "replayed with another schema than before" in caplog.text
