"""Positions belong to a log: it is another one in a topic that was made anew, and after a new leader has cut it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from streamling.connector import Json, Offer
from streamling.dev.topics import Message
from streamling.errors import OFFSETS_GONE, StreamlingError
from streamling.sources.kafka.source import KafkaSource
from support.kafka_broker import KafkaBroker
from support.kafka_source_samples import PLENTY, eventually, everything, positions_of, read, source

pytestmark = pytest.mark.servers

JSON = ", data_format: json, schema: {n: int64}"
EARLIEST = f"{JSON}, on_missing_offsets: earliest"


def numbers(*values: int) -> list[Message | bytes | str | None]:
    return [b'{"n": %d}' % n for n in values]


def found(rows: list[Any]) -> list[Any]:
    return [row["n"] for row in rows]


def made_anew(kafka: KafkaBroker, topic: str, *values: int, partitions: int = 1) -> None:
    kafka.topics.delete(topic)
    kafka.topics.create(topic, partitions)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=0) for n in values])


def recalled(events: KafkaSource, offer: Offer | None) -> Offer:
    assert offer is not None
    return Offer(events.recall([type(s).from_json(json.loads(json.dumps(s.to_json()))) for s in offer.slices]))


def test_a_topic_made_anew_that_is_longer_than_before_is_not_continued_in_its_middle(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(*range(5)))
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(PLENTY)
        stored = positions_of(offer)
    made_anew(kafka, topic, *range(100, 108))
    with pytest.raises(StreamlingError) as caught, source(kafka.brokers, topic, JSON, stored) as events:
        everything(events)
    assert caught.value.condition is OFFSETS_GONE
    text = f"partition 0 of topic '{topic}' no longer has the stored offset 5: the topic was deleted and created again"
    assert text in caught.value.message
    with source(kafka.brokers, topic, EARLIEST, stored) as events:
        assert found(everything(events)) == list(range(100, 108))
    # An epoch that was recorded has rows of the old topic, which are gone, and none of the new one.
    with source(kafka.brokers, topic, JSON) as events:
        assert read(events, recalled(events, offer)) == []
    assert "no longer has 5 of its offsets 0 to 5: the topic was deleted and created again" in caplog.text


def test_positions_of_older_versions_have_neither_id_nor_epoch(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(*range(5)))
    plain: dict[str, Json] = {f"events:{topic}:0": {"offset": 3, "updated_at": 1}}
    with source(kafka.brokers, topic, JSON, plain) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        assert found(read(events, offer)) == [3, 4]
        (slice_,) = offer.slices
        assert slice_.start == {"offset": 3, "updated_at": 1}
        assert isinstance(slice_.end, dict)
        assert slice_.end.keys() == {"offset", "updated_at", "topic_id", "leader_epoch"}
        old = Offer((replace(slice_, parts=([0, 3, 5, None, False],)),))
        assert found(read(events, recalled(events, old))) == [3, 4]


@pytest.mark.parametrize("rows", [1, 300], ids=["shorter", "longer"])
@pytest.mark.parametrize("lookup_s", [0.2, 60.0], ids=["looked up soon", "looked up late"])
def test_a_topic_made_anew_while_it_is_read_is_noticed(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, rows: int, lookup_s: float
) -> None:
    """Its rows are read once and from the first one on, also if an offer was made before it was noticed."""
    monkeypatch.setattr("streamling.sources.kafka.control._TOPIC_S", lookup_s)
    monkeypatch.setattr("streamling.sources.kafka.source._SHORT_S", 0.5)
    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2, 3))
    with source(kafka.brokers, topic, JSON) as strict, source(kafka.brokers, topic, EARLIEST) as lax:
        assert found(everything(strict)) == found(everything(lax)) == [1, 2, 3]
        made_anew(kafka, topic, *range(100, 100 + rows))
        assert found(eventually(lax, rows)) == list(range(100, 100 + rows))
        with pytest.raises(StreamlingError) as caught:
            eventually(strict, 100)
    assert caught.value.condition is OFFSETS_GONE


def test_a_topic_without_ids_and_epochs_is_read_as_before(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an old broker answers, or one that denies the question."""
    monkeypatch.setattr("streamling.clients.kafka.Broker.topic_id", lambda broker: None)
    monkeypatch.setattr("streamling.clients.kafka._leader_epoch", lambda answer: None)
    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2, 3))
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(PLENTY)
        assert found(read(events, offer)) == [1, 2, 3]
        stored = positions_of(offer)
        assert offer is not None
        assert offer.slices[0].parts == ([0, 0, 3, None, False],)
    kafka.produce(topic, numbers(4))
    with source(kafka.brokers, topic, JSON, stored) as events:
        assert found(everything(events)) == [4]


def test_a_log_that_a_new_leader_has_cut_is_noticed(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.topic()
    key = f"events:{topic}:0"
    kafka.produce(topic, numbers(*range(10)))
    with source(kafka.brokers, topic, JSON) as running:
        offer = running.offer(PLENTY)
        assert found(read(running, offer)) == list(range(10))
        assert offer is not None
        (slice_,) = offer.slices
        position = positions_of(offer)[key]
        assert isinstance(position, dict)
        kafka.restart()  # there is a leader of a later epoch now, which begins at offset 10
        kafka.produce(topic, numbers(*range(10, 30)))
        assert found(eventually(running, 20)) == list(range(10, 30))
    # The position of a process that had read more of the first epoch than the broker has of it.
    cut: dict[str, Json] = {key: {**position, "offset": 15}}
    with pytest.raises(StreamlingError) as caught, source(kafka.brokers, topic, JSON, cut) as events:
        everything(events)
    assert caught.value.condition is OFFSETS_GONE
    assert "no longer has the stored offset 15: its log was truncated when its leader changed" in caught.value.message
    with source(kafka.brokers, topic, EARLIEST, cut) as events:
        assert found(everything(events)) == list(range(30))
    with source(kafka.brokers, topic, JSON, {key: position}) as events:
        assert found(everything(events)) == list(range(10, 30))
    # So has the record of an epoch: its rows behind the cut are others now.
    (part,) = slice_.parts
    assert isinstance(part, list)
    longer = Offer((replace(slice_, parts=([0, 4, 15, *part[3:]],)),))
    with source(kafka.brokers, topic, JSON) as events:
        assert found(read(events, recalled(events, longer))) == list(range(4, 10))
        assert found(read(events, recalled(events, offer))) == list(range(10))
    assert caplog.text.count("the log was truncated at or before offset 10") == 1
