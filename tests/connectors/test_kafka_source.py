"""The Kafka source reads a topic from where it should to where it ends, once, and says what it cannot read."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection
from typing import Any

import pytest

from streamling.clients.kafka import Broker
from streamling.connector import BadRow, Counted, Room
from streamling.dev.topics import Message
from streamling.errors import OFFSETS_GONE, SCHEMA_OUTDATED, SOURCE_FAILED, StreamlingError
from support.avro_frames import framed
from support.kafka_broker import KafkaBroker
from support.kafka_source_samples import (
    PLENTY,
    divided,
    eventually,
    everything,
    positions_of,
    read,
    source,
    transaction,
)
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers

JSON = ", data_format: json, schema: {n: int64}"
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
    }
)
NEWER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "text", "type": ["null", "string"]},
            {"name": "more", "type": "int", "default": 7},
        ],
    }
)


def numbers(*values: int) -> list[Message | bytes | str | None]:
    return [b'{"n": %d}' % n for n in values]


def found(rows: list[Any]) -> list[Any]:
    return [row["n"] for row in rows]


def test_rows_of_all_partitions_come_in_the_order_of_their_offsets(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=3)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 3) for n in range(30)])
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        assert [s.key for s in offer.slices] == [f"events:{topic}:{n}" for n in range(3)]
        assert found(read(events, offer)) == [n for p in range(3) for n in range(p, 30, 3)]
        assert events.offer(PLENTY) is None
        kafka.produce(topic, numbers(99))
        assert found(eventually(events, 1)) == [99]


def test_offers_keep_to_the_room_there_is(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(20)])
    with source(kafka.brokers, topic, JSON) as events:
        small = Room(6, parts=2, part_rows=1)
        offer = events.offer(small)
        assert offer is not None
        assert offer.rows == 6
        assert found(read(events, offer)) == [0, 2, 4, 1, 3, 5]
        assert sorted(found(everything(events, small))) == list(range(6, 20))


def test_partitions_take_turns_where_there_is_no_room_for_all(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=5)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 5) for n in range(10)])
    with source(kafka.brokers, topic, JSON) as events:
        small = Room(2, parts=2, part_rows=1)
        turns = [found(read(events, events.offer(small))) for _ in range(3)]
        assert turns == [[0, 1], [2, 3], [5, 4]]
        assert sorted(found(everything(events, small))) == [6, 7, 8, 9]


def test_an_offer_says_how_many_rows_wait_behind_it(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(20)])
    with source(kafka.brokers, topic, JSON) as events:
        offers = [events.offer(Room(6, parts=2, part_rows=1)) for _ in range(4)]
        assert [offer and offer.waiting for offer in offers] == [14, 8, 2, 0]


def test_columns_that_nobody_looks_at_stay_behind(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    rows = ", data_format: json, schema: {n: int64, text: string, more: string}, tombstones: delete, primary_key: n"
    kafka.produce(
        topic,
        [b'{"n": 1, "text": "a", "more": "b"}', Message(None, b"7"), b'{"n": 2, "text": 5}', b'{"n": 3}'],
    )
    with source(kafka.brokers, topic, rows + ", include_metadata: true", looked_at=["__kafka_offset"]) as events:
        assert events.columns.names == ("n", "__kafka_offset", "_gs_op")
        found = everything(events)
    assert [row for row in found if not isinstance(row, BadRow)] == [
        {"n": 1, "__kafka_offset": 0, "_gs_op": "i"},
        {"n": 7, "__kafka_offset": 1, "_gs_op": "d"},
        {"n": 3, "__kafka_offset": 3, "_gs_op": "i"},
    ]
    # A value that does not fit makes the message bad, whether somebody looks at it or not.
    assert [row.source["offset"] for row in found if isinstance(row, BadRow)] == [2]


def test_a_filter_has_the_columns_it_looks_at(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    rows = ", data_format: json, schema: {n: int64, text: string, more: string}, filter: more IS NULL"
    with source(kafka.brokers, topic, rows, looked_at=["n"]) as events:
        assert events.columns.names == ("more", "n", "_gs_op")
        assert events.select is not None
        assert [name for _, name in events.select.columns] == ["n", "_gs_op"]


def test_operations_are_read_whatever_other_headers_there_are(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    update, other = ("dbz.op", b"u"), ("trace", None)
    kafka.produce(
        topic,
        [
            Message(b'{"n": 1}', headers=(update,)),
            Message(b'{"n": 2}', headers=(update, other)),
            Message(b'{"n": 3}'),
            Message(b'{"n": 4}', headers=(other, ("DBZ.OP", b"d"))),
            Message(b'{"n": 5}', headers=(other,)),
        ],
    )
    with source(kafka.brokers, topic, JSON) as events:
        assert [(row["n"], row["_gs_op"]) for row in everything(events)] == [
            (1, "u"),
            (2, "u"),
            (3, "i"),
            (4, "d"),
            (5, "i"),
        ]


def test_reading_goes_on_behind_the_stored_offsets(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2, 3))
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(Room(2, parts=1, part_rows=1))
        stored = positions_of(offer)
    position = stored[f"events:{topic}:0"]
    assert isinstance(position, dict)
    assert position["offset"] == 2
    with source(kafka.brokers, topic, JSON, stored) as events:
        assert found(everything(events)) == [3]
    with source(kafka.brokers, topic, JSON + ", starting_offsets: latest", stored) as events:
        assert found(everything(events)) == [3]


def test_a_slice_is_read_again_alike(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2, 3))
    with source(kafka.brokers, topic, JSON) as events:
        first = events.offer(Room(2, parts=1, part_rows=1))
        assert found(read(events, first)) == [1, 2]
        second = events.offer(PLENTY)
        assert found(read(events, second)) == [3]
        assert found(read(events, first)) == [1, 2]
        assert found(read(events, second)) == [3]


def test_without_stored_offsets_reading_starts_where_it_is_told(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [Message(b'{"n": %d}' % n, timestamp=1_700_000_000_000 + n) for n in range(5)])
    for start, expected in (("earliest", [0, 1, 2, 3, 4]), ("latest", []), ("'1700000000003'", [3, 4])):
        with source(kafka.brokers, topic, f"{JSON}, starting_offsets: {start}") as events:
            assert found(everything(events)) == expected
    with source(kafka.brokers, topic, f"{JSON}, starting_offsets: '1800000000000'") as events:
        assert everything(events) == []
        kafka.produce(topic, numbers(5))
        assert found(eventually(events, 1)) == [5]


def test_aborted_transactions_are_not_read_and_open_ones_not_yet(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(1))
    with source(kafka.brokers, topic, JSON) as events:
        assert found(everything(events)) == [1]
        with transaction(kafka.brokers, topic, [b'{"n": 2}'], commit=False):
            assert events.offer(PLENTY) is None
        with transaction(kafka.brokers, topic, [b'{"n": 3}'], commit=True):
            assert everything(events) == []
        assert found(eventually(events, 1)) == [3]
        # The mark of the transaction takes up an offset behind the last message.
        extent = events.extent()
        assert extent is not None
        assert extent.done == 5
        kafka.produce(topic, numbers(4))
        assert found(eventually(events, 1)) == [4]


def test_offsets_that_are_gone_stop_the_start_or_are_passed(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2))
    stored = {f"events:{topic}:0": {"offset": 7, "updated_at": 0}}
    with source(kafka.brokers, topic, JSON, stored) as events:
        with pytest.raises(StreamlingError) as caught:
            events.offer(PLENTY)
        assert caught.value.condition is OFFSETS_GONE
        assert "no longer has the stored offset 7: it has 0 up to 2" in caught.value.message
    with source(kafka.brokers, topic, f"{JSON}, on_missing_offsets: earliest", stored) as events:
        assert found(everything(events)) == [1, 2]
    with source(kafka.brokers, topic, f"{JSON}, on_missing_offsets: latest", stored) as events:
        assert everything(events) == []
    assert "resuming at 2" in caplog.text


def test_metadata_and_operations(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    operations = [None, b"r", b"c", b"u", b"d"]
    kafka.produce(
        topic,
        [
            Message(
                b'{"n": 1}', headers=() if op is None else (("x", b"y"), ("DBZ.op", op), ("dbz.op", b"?")), timestamp=5
            )
            for op in operations
        ],
    )
    with source(kafka.brokers, topic, f"{JSON}, include_metadata: true") as events:
        rows: list[Any] = everything(events)
    assert [row["_gs_op"] for row in rows] == ["i", "i", "i", "u", "d"]
    assert list(rows[0]) == ["n", "__kafka_partition", "__kafka_offset", "__kafka_timestamp", "_gs_op"]
    assert [row["__kafka_offset"] for row in rows] == [0, 1, 2, 3, 4]
    assert {row["__kafka_timestamp"].microsecond for row in rows} == {5000}


def test_a_bad_message_stands_in_its_place_with_all_there_is_to_know(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    bad_header = Message(b'{"n": 3}', b"key", (("dbz.op", b"x"),))
    kafka.produce(topic, [b'{"n": 1}', b"oops", bad_header, b'{"n": "four"}', b"", b'{"n": 5}'])
    with source(kafka.brokers, topic, f"{JSON}, tombstones: error") as events:
        rows = everything(events)
    assert rows[0] == {"n": 1, "_gs_op": "i"}
    assert rows[5] == {"n": 5, "_gs_op": "i"}
    bad = [row for row in rows if isinstance(row, BadRow)]
    assert [row.reason for row in bad] == ["decode_error", "unknown_operation", "schema_mismatch", "tombstone"]
    assert [row.source["offset"] for row in bad] == [1, 2, 3, 4]
    assert bad[1].source == {"topic": topic, "partition": 0, "offset": 2}
    assert (bad[1].raw, bad[1].raw_key, bad[1].headers) == (b'{"n": 3}', b"key", (("dbz.op", b"x"),))


def test_tombstones_are_passed_over(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [None, b'{"n": 1}', Message(None, b"k", (("dbz.op", b"nonsense"),)), b""])
    with source(kafka.brokers, topic, JSON) as events:
        offer = events.offer(PLENTY)
        assert found(read(events, offer)) == [1]
        assert offer is not None
        items = [item for s in offer.slices for part in s.parts for item in events.reader().read(part)]
        counted = [item for item in items if isinstance(item, Counted)]
        assert counted == [Counted("tombstones_skipped", 3), Counted("row_kind_count:i", 1)]


def test_tombstones_delete_the_row_of_their_key(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    composite = ", data_format: json, schema: {n: int64, m: string, x: int64}, primary_key: 'm,n', tombstones: delete"
    keys = [b"a:1", b'{"n": 2, "m": "b"}', b"a", None, b"a:b"]
    kafka.produce(topic, [b'{"n": 1, "m": "a", "x": 1}', *(Message(None, key, (("dbz.op", b"u"),)) for key in keys)])
    with source(kafka.brokers, topic, composite) as events:
        rows = everything(events)
    assert rows[:3] == [
        {"m": "a", "n": 1, "x": 1, "_gs_op": "i"},
        {"m": "a", "n": 1, "x": None, "_gs_op": "d"},
        {"m": "b", "n": 2, "x": None, "_gs_op": "d"},
    ]
    assert [row.reason for row in rows[3:] if isinstance(row, BadRow)] == ["tombstone"] * 3


def test_tombstones_of_avro_keys_delete(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    schema_registry.register(f"{topic}-value", ORDER)
    text = '{"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}'
    record, plain = (schema_registry.register(f"{topic}-{n}-key", s) for n, s in enumerate((text, '"long"')))
    framed_keys = [framed(record, text, {"id": 5}).value, framed(plain, '"long"', 6).value]
    kafka.produce(topic, [Message(None, key) for key in framed_keys])
    more = ", primary_key: id, tombstones: delete"
    with source(kafka.brokers, topic, more, registry_url=schema_registry.url) as events:
        assert everything(events) == [{"id": n, "text": None, "_gs_op": "d"} for n in (5, 6)]
        # Of a schema that is gone nobody can say which row is meant.
        kafka.produce(topic, [Message(None, b"\0\x7f\0\0\0\x0c")])
        (bad,) = eventually(events, 1)
        assert isinstance(bad, BadRow)
        assert bad.reason == "tombstone"
        assert f"the Avro schema id {0x7F << 24}" in bad.message


def test_the_operation_of_the_payload_wins(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    header = (("dbz.op", b"nonsense"),)
    kafka.produce(topic, [Message(b'{"n": 1, "_gs_op": "u"}', headers=header), b'{"n": 2, "_gs_op": "x"}'])
    with source(kafka.brokers, topic, ", data_format: json, schema: {n: int64, _gs_op: string}") as events:
        first, second = everything(events)
    assert first == {"n": 1, "_gs_op": "u"}
    assert isinstance(second, BadRow)
    assert second.reason == "unknown_operation"


def test_the_group_is_told_what_is_durable(kafka: KafkaBroker) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2, 3))
    group = f"g{uuid.uuid4().hex}"
    with source(kafka.brokers, topic, JSON, consumer_group_id=group) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        events.committed(offer.slices)
    consumer = Consumer({"bootstrap.servers": kafka.brokers, "group.id": f"{group}-events"})
    (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    assert place.offset == 3


def test_what_is_left_is_known(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(1, 2, 3))
    with source(kafka.brokers, topic, JSON) as events:
        assert events.extent() is None
        events.offer(Room(1, parts=1, part_rows=1))
        extent = events.extent()
    assert extent is not None
    assert (extent.done, extent.total, extent.unit) == (1, 3, "rows")


def test_idle_partitions_are_listened_to_and_the_broker_is_left_alone(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, numbers(1, 2, 3))
    asked: list[float] = []
    end = Broker.end

    def counted(broker: Broker, partitions: Collection[int]) -> dict[int, int]:
        asked.append(time.monotonic())
        return end(broker, partitions)

    monkeypatch.setattr(Broker, "end", counted)
    with source(kafka.brokers, topic, JSON) as events:
        assert sorted(found(everything(events))) == [1, 2, 3]
        began = time.monotonic()
        while time.monotonic() - began < 3:
            assert events.offer(PLENTY) is None
            time.sleep(0.02)
        assert len([at for at in asked if at > began]) <= 4
        kafka.produce(topic, numbers(4))
        assert found(eventually(events, 1)) == [4]


def test_a_topic_that_is_not_there_is_an_error(kafka: KafkaBroker) -> None:
    with pytest.raises(StreamlingError) as caught, source(kafka.brokers, "nowhere", JSON):
        pass
    assert caught.value.condition is SOURCE_FAILED
    assert "there is no topic 'nowhere'" in caught.value.message


def test_partitions_that_are_added_are_read_from_their_beginning(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamling.sources.kafka.control._LOOK_S", 0.1)
    topic = kafka.topic()
    kafka.produce(topic, numbers(0))
    with source(kafka.brokers, topic, f"{JSON}, starting_offsets: latest") as events:
        start = events.offer(PLENTY)
        assert positions_of(start)[f"events:{topic}:0"]["offset"] == 1  # type: ignore[call-overload, index]
        assert read(events, start) == []
        kafka.add_partitions(topic, 2)
        kafka.produce(topic, [Message(b'{"n": 1}', partition=1)])
        divided(events, 2)
        events.open(positions_of(start))
        assert found(everything(events)) == [1]


def test_avro_rows_of_several_schemas_keep_their_order(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    old = schema_registry.register(f"{topic}-value", ORDER)
    new = schema_registry.register(f"{topic}-value", NEWER)
    messages = [
        framed(new, NEWER, {"id": n, "text": None, "more": n}, "u")
        if n % 2
        else framed(old, ORDER, {"id": n, "text": str(n)}, "d")
        for n in range(6)
    ]
    kafka.produce(topic, [*messages, b"\0\0", b"\1abcdefgh", Message((messages[0].value or b"") + b"x")])
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as events:
        rows = everything(events)
    assert rows[0] == {"id": 0, "text": "0", "more": 7, "_gs_op": "d"}
    assert rows[1] == {"id": 1, "text": None, "more": 1, "_gs_op": "u"}
    assert [row["id"] for row in rows if not isinstance(row, BadRow)] == list(range(6))
    assert [row.source["offset"] for row in rows if isinstance(row, BadRow)] == [6, 7, 8]


def test_a_schema_newer_than_the_one_read_with_ends_the_run_unless_it_may(
    kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic()
    schema_registry.register(f"{topic}-value", ORDER)
    kafka_source = {"registry_url": schema_registry.url}
    unchecked = ", validate_writer_schema_ordering: false"
    with (
        source(kafka.brokers, topic, **kafka_source) as strict,
        source(kafka.brokers, topic, unchecked, **kafka_source) as lax,
    ):
        new = schema_registry.register(f"{topic}-value", NEWER)
        kafka.produce(topic, [framed(new, NEWER, {"id": 1, "text": "a", "more": 3})])
        with pytest.raises(StreamlingError) as caught:
            everything(strict)
        assert everything(lax) == [{"id": 1, "text": "a", "_gs_op": "i"}]
    assert caught.value.condition is SCHEMA_OUTDATED
    assert f"id {new}" in caught.value.message


def test_schema_ids_are_read_as_others(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    id_ = schema_registry.register(f"{topic}-value", ORDER)
    kafka.produce(topic, [framed(987654, ORDER, {"id": 1, "text": "a"})])
    more = f", schema_id_overrides: [{{from: 987654, to: {id_}}}]"
    with source(kafka.brokers, topic, more, registry_url=schema_registry.url) as events:
        assert everything(events) == [{"id": 1, "text": "a", "_gs_op": "i"}]
