"""The Kafka sink on a real broker: topics, messages, epochs and their owners, rows that cannot be messages."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from streamling.clients import kafka_producer
from streamling.connector import Applied, Guarantee
from streamling.errors import SINK_FAILED, Fenced, PermanentError, TransientError, UserError
from streamling.plan.types import DATE, INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.sinks.kafka.ledger import _WAIT
from streamling.sinks.kafka.sink import KafkaSink
from support.kafka_broker import KafkaBroker
from support.kafka_sink_samples import committed, many_keys, rows_of, sink, write
from support.postgres_samples import LOOSE, TASK, batch, epoch

pytestmark = pytest.mark.servers
JSON = ", data_format: json"
SKIP = f"{JSON}, on_error: skip"


def ids(kafka: KafkaBroker, topic: str) -> list[int]:
    return [row["id"] for row in rows_of(committed(kafka.brokers, topic))]


def topic_setting(kafka: KafkaBroker, topic: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.brokers})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return str(admin.describe_configs([resource])[resource].result(20)[name].value)


# Topics


def test_a_missing_topic_is_made_and_an_existing_one_is_left_alone(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    made = f"{kafka.topic()}.made-2"
    with sink(kafka.brokers, made, f"{JSON}, topic_partitions: 3"):
        assert kafka.topics.partitions(made) == 3
    assert topic_setting(kafka, made, "cleanup.policy") == "compact"
    assert topic_setting(kafka, made, "retention.ms") == "-1"
    given = kafka.topic(partitions=2, cleanup_policy="delete")
    caplog.set_level(logging.DEBUG, "streamling")
    with sink(kafka.brokers, given, f"{JSON}, topic_partitions: 3") as out:
        write(out, [(1, "a", 2, "i")])
    assert f"topic '{given}' exists, creation is skipped" in caplog.text
    assert kafka.topics.partitions(given) == 2 and topic_setting(kafka, given, "cleanup.policy") == "delete"


# Messages


def test_a_row_becomes_a_message_with_key_and_header(kafka: KafkaBroker) -> None:
    columns = Schema((Field("a", STRING), Field("d", DATE), Field("n", INT64), Field("_gs_op", STRING)))
    rows = [("x:y", 20_000, 1, "i"), (None, None, 2, "U"), ("é🚀", 0, 3, "d")]
    topic = kafka.topic()
    with sink(kafka.brokers, topic, columns=columns, key=("a", "d")) as out:
        assert write(out, rows, columns=columns).rows == 3
    messages = committed(kafka.brokers, topic)
    assert [m.key for m in messages] == [b"x:y:2024-10-04", b"NULL:NULL", "é🚀:1970-01-01".encode()]
    assert [m.headers for m in messages] == [(("dbz.op", op),) for op in (b"c", b"u", b"d")]
    assert [m.value for m in messages][1:] == [
        b'{"a":null,"d":null,"n":2,"_gs_op":"U"}',
        '{"a":"é🚀","d":"1970-01-01","n":3,"_gs_op":"d"}'.encode(),
    ]


def test_the_key_decides_about_the_partition_and_messages_have_the_time_of_writing(kafka: KafkaBroker) -> None:
    columns = Schema((Field("id", INT64), OPERATION_FIELD))
    topic, began = kafka.topic(partitions=3), time.time()
    with sink(kafka.brokers, topic, f"{JSON}, deduplicate: false", columns=columns) as out:
        write(out, [(n % 30, "i") for n in range(90)], columns=columns)
    messages = committed(kafka.brokers, topic)
    assert len({(message.key, message.partition) for message in messages}) == 30
    assert {message.partition for message in messages} == {0, 1, 2}
    assert all(began - 1 <= (message.timestamp or 0) / 1000 <= time.time() + 1 for message in messages)


@pytest.mark.parametrize(
    ("more", "size", "owed"),
    [
        ("", 1000, "b2 c3 NULL5 a6"),
        ("", 3, "b2 a3 c3 NULL5 a6"),
        (", deduplicate: false", 1000, "a1 b2 a3 c3 NULL4 NULL5 a6"),
    ],
)
def test_of_a_key_in_a_batch_the_last_row_is_written(kafka: KafkaBroker, more: str, size: int, owed: str) -> None:
    columns = Schema((Field("k", STRING), Field("n", INT64), OPERATION_FIELD))
    rows = [("a", 1, "i"), ("b", 2, "i"), ("a", 3, "d"), ("c", 3, "i"), (None, 4, "i"), (None, 5, "d"), ("a", 6, "i")]
    topic = kafka.topic()
    with sink(kafka.brokers, topic, JSON + more, columns=columns, key=("k",), record_batch_size=size) as out:
        report = out.write(LOOSE, TASK, [batch(rows[:2], columns), batch(rows[2:], columns)])
        assert (report.rows, out.commit(LOOSE, [report])) == (7, len(owed.split()))
        assert out.recount([batch(rows, columns)]) == len(owed.split())
    found = [f"{row['k'] or 'NULL'}{row['n']}" for row in rows_of(committed(kafka.brokers, topic))]
    assert found == owed.split()


def test_messages_are_compressed_as_told(kafka: KafkaBroker) -> None:
    sizes = {}
    rows = [(n, "long and always the same " * 20, n, "i") for n in range(200)]
    for compression in ("none", "GZIP", "lz4"):
        topic = kafka.topic()
        with sink(kafka.brokers, topic, f"{JSON}, compression: {compression}") as out:
            write(out, rows)
        assert ids(kafka, topic) == list(range(200))
        (log,) = Path(kafka.site.directory).glob(f"data/{topic}-0/*.log")
        content = log.read_bytes()
        # The attributes of the first batch; its lowest bits name the codec.
        sizes[compression] = (content[22] & 7, len(content))
    assert {name: codec for name, (codec, _) in sizes.items()} == {"none": 0, "GZIP": 1, "lz4": 3}
    assert sizes["GZIP"][1] < sizes["none"][1] / 10 > sizes["lz4"][1]


# Epochs


def test_an_epoch_is_written_once(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    first, second = epoch(None, {"offset": 5}), epoch({"offset": 5}, {"offset": 9})
    with sink(kafka.brokers, topic) as out:
        assert out.applied(first.slices) is Applied.NO
        assert write(out, [(1, "a", 1, "i")], first).rows == 1
        out.write(second, TASK, [batch([(2, "lost", 1, "i")])])
        assert ids(kafka, topic) == [1]  # not before the commit
        out.abort(second)
        write(out, [(3, "b", 1, "i")], second)
        assert out.applied(second.slices) is Applied.YES
        assert out.applied(first.slices) is Applied.UNKNOWN
        assert out.applied(epoch({"offset": 9}, {"offset": 10}).slices) is Applied.NO
    with sink(kafka.brokers, topic) as again:  # another process
        again_second = epoch({"offset": 5}, {"offset": 9})
        report = again.write(again_second, TASK, [batch([(3, "b", 1, "i")])])
        assert (report.rows, again.commit(again_second, [report])) == (1, 1)
        with pytest.raises(Fenced, match="taken over"):
            write(again, [(1, "a", 1, "i")], epoch(None, {"offset": 5}))
        write(again, [(4, "c", 1, "i")], LOOSE)
    with sink(kafka.brokers, topic, generation="after a reset") as other:
        assert other.applied(first.slices) is Applied.NO
        write(other, [(5, "d", 1, "i")], first)
    assert sorted(ids(kafka, topic)) == [1, 3, 4, 5]


def test_a_lost_answer_to_a_commit_is_not_a_second_write(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    one = epoch(None, 1)
    with sink(kafka.brokers, topic) as out:
        report = out.write(one, TASK, [batch([(1, "a", 1, "i")])])
        out.commit(one, [report])
        out._end_session()  # what the sink does when it does not know how a commit has ended
        repeated = out.write(one, TASK, [batch([(1, "a", 1, "i")])])
        assert out.commit(one, [repeated]) == 1
    assert ids(kafka, topic) == [1]


def test_who_was_taken_over_commits_nothing_more(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    with sink(kafka.brokers, topic) as slow, sink(kafka.brokers, topic) as fast:
        write(slow, [(1, "a", 1, "i")], epoch(None, 1))
        late = epoch(1, 3)
        report = slow.write(late, TASK, [batch([(2, "late", 1, "i")])])
        assert fast.applied(late.slices) is Applied.NO
        assert fast.abandon(late) is Applied.NO
        with pytest.raises(TransientError, match="fenced by a newer instance"):
            slow.commit(late, [report])
        slow.abort(late)
        with pytest.raises(Fenced, match="taken over"):  # the rows were not written again yet
            write(slow, [(2, "late", 1, "i")], late)
        write(fast, [(2, "b", 1, "i")], epoch(1, 2))
        with pytest.raises(Fenced, match="taken over"):
            write(slow, [(2, "late", 1, "i")], late)
        write(fast, [(3, "c", 1, "i")], epoch(2, 3))
    assert [row["name"] for row in rows_of(committed(kafka.brokers, topic))] == ["a", "b", "c"]


def test_an_epoch_is_abandoned_before_its_owner_has_written_anything(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    late = epoch(None, 3)
    with sink(kafka.brokers, topic) as slow, sink(kafka.brokers, topic) as fast:
        assert fast.abandon(late) is Applied.NO
        with pytest.raises(Fenced, match="taken over"):
            write(slow, [(1, "late", 1, "i")], late)
        write(fast, [(1, "a", 1, "i")], epoch(None, 1))
        assert slow.abandon(epoch(None, 1)) is Applied.YES
    assert [row["name"] for row in rows_of(committed(kafka.brokers, topic))] == ["a"]


def test_two_processes_share_the_keys(kafka: KafkaBroker) -> None:
    """Who loses a key to the other goes on with those that are left."""
    topic = kafka.topic()
    with sink(kafka.brokers, topic) as one, sink(kafka.brokers, topic) as two:
        for n in range(3):
            write(one, [(n, "one", 1, "i")], epoch(n or None, n + 1, key="a"))
            write(two, [(n, "two", 1, "i")], epoch(n or None, n + 1, key="b"))
        both = many_keys(0, 1, ["c", "d"], "both")
        write(one, [(3, "one", 1, "i")], both)
        (_, d) = both.slices
        write(two, [(4, "two", 1, "i")], epoch(d.end, 2, key="d"))
        with pytest.raises(TransientError):  # it was fenced because of the other key
            write(one, [(5, "one", 1, "i")], epoch(3, 4, key="a"))
        one.abort(LOOSE)
        write(one, [(5, "one", 1, "i")], epoch(3, 4, key="a"))
        write(two, [(5, "two", 1, "i")], epoch(3, 4, key="b"))
    assert sorted(ids(kafka, topic)) == [0, 0, 1, 1, 2, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("count", [200, 3000])
def test_many_state_keys_are_kept(kafka: KafkaBroker, count: int) -> None:
    """A broker keeps 4096 bytes per offset, so they do not fit as they are."""
    topic, keys = kafka.topic(), [f"orders:a-topic-with-a-long-name.v1:{n}" for n in range(count)]
    with sink(kafka.brokers, topic) as out:
        write(out, [(1, "a", 1, "i")], many_keys(0, 5, keys, "one"))
        write(out, [(2, "b", 1, "i")], epoch(many_keys(0, 5, keys, "").slices[7].end, 6, key=keys[7]))
    with sink(kafka.brokers, topic) as other:
        assert other.applied(many_keys(0, 5, keys[8:], "").slices) is Applied.YES
        assert other.applied(many_keys(0, 5, keys, "").slices) is Applied.UNKNOWN
        write(other, [(3, "c", 1, "i")], many_keys(5, 6, keys[8:], "three"))
        assert other.applied(many_keys(5, 6, keys[8:], "").slices) is Applied.YES
    assert ids(kafka, topic) == [1, 2, 3]


def test_without_transactions_messages_appear_at_once(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    with sink(kafka.brokers, topic, f"{JSON}, exactly_once: false") as out:
        assert out.capabilities.guarantee is Guarantee.AT_LEAST_ONCE and not out.capabilities.transactional
        one = epoch(None, 1)
        out.write(one, TASK, [batch([(1, "a", 1, "i")])])
        assert ids(kafka, topic) == [1]
        out.abort(one)
        write(out, [(1, "a", 1, "i")], one)
    assert ids(kafka, topic) == [1, 1]


# Rows that cannot be messages


@pytest.mark.parametrize("more", [SKIP, f"{SKIP}, exactly_once: false"])
def test_rows_that_cannot_be_messages_are_told_apart(kafka: KafkaBroker, more: str) -> None:
    topic = kafka.topic()
    rows = [(1, "fine", 1, "i"), (2, "x" * 3000, 1, "i"), (1, "odd", 2, "x"), (3, "fine", 1, "i"), (4, "odd", 1, None)]
    with sink(kafka.brokers, topic, f"{more}, message_max_bytes: 2000") as out:
        report = out.write(one := epoch(None, 1), TASK, [batch(rows)])
        assert [(bad.index, bad.reason) for bad in sorted(report.bad_rows, key=lambda bad: bad.index or 0)] == [
            (1, "message_too_large"),
            (2, "unknown_operation"),
            (4, "unknown_operation"),
        ]
        texts = {bad.index: bad.message for bad in report.bad_rows}
        assert texts[1].startswith(f"topic '{topic}', key '2': the message has 3,0")
        assert texts[1].endswith("bytes, 'message_max_bytes' is 2,000; most of it is the column 'name'")
        assert texts[2] == "_gs_op is 'x'; it must be i, u or d"
        if out.capabilities.transactional:  # as the engine does it
            out.abort(one)
            report = out.write(one, TASK, [batch([rows[0], rows[3]])])
        assert report.rows == 2
        assert out.commit(one, [report]) == 2
    assert ids(kafka, topic) == [1, 3]


@pytest.mark.parametrize("more", [SKIP, f"{SKIP}, exactly_once: false"])
def test_a_message_that_only_the_broker_finds_too_large_is_a_bad_row(kafka: KafkaBroker, more: str) -> None:
    topic = kafka.topic(max_message_bytes="3000")
    rows = [(n, "x" * 200, n, "i") for n in range(100)]
    rows[50] = (50, "x" * 4000, 50, "i")
    with sink(kafka.brokers, topic, f"{more}, compression: none") as out:
        report = out.write(one := epoch(None, 1), TASK, [batch(rows)])
        (bad,) = report.bad_rows
        assert (bad.index, bad.reason) == (50, "message_too_large")
        assert f"topic '{topic}', key '50': the broker rejects the message because of its size" in bad.message
        if out.capabilities.transactional:
            out.abort(one)
            report = out.write(one, TASK, [batch(rows[:50] + rows[51:])])
        assert out.commit(one, [report]) == 99
    assert ids(kafka, topic) == [*range(50), *range(51, 100)]


def test_messages_behind_one_that_the_broker_rejects_are_delivered_with_the_epoch(kafka: KafkaBroker) -> None:
    topic = kafka.topic(max_message_bytes="3000")
    rows = [(n, "x" * 200, n, "i") for n in range(20_000)]
    rows[5] = (5, "x" * 4000, 5, "i")
    with sink(kafka.brokers, topic, f"{SKIP}, compression: none, exactly_once: false") as out:
        report = out.write(one := epoch(None, 1), TASK, [batch(rows)])
        assert [bad.index for bad in report.bad_rows] == [5]
        assert out.commit(one, [report]) == 19_999
    assert ids(kafka, topic) == [*range(5), *range(6, 20_000)]


# Trouble


def delete(kafka: KafkaBroker, topic: str) -> None:
    kafka.topics.delete(topic)


@pytest.mark.parametrize("more", [JSON, f"{JSON}, exactly_once: false"])
def test_a_topic_that_vanishes_ends_the_run(kafka: KafkaBroker, more: str) -> None:
    topic = kafka.topic()
    with sink(kafka.brokers, topic, more) as out:
        write(out, [(1, "a", 1, "i")], epoch(None, 1))
        delete(kafka, topic)
        with pytest.raises(PermanentError, match="the topic does not exist any more") as caught:
            deadline, n = time.monotonic() + 30, 1
            while time.monotonic() < deadline:  # the client may not have heard of it yet
                write(out, [(n, "b", 1, "i")], epoch(n, n + 1))
                n += 1
        assert topic in caught.value.message and caught.value.condition is SINK_FAILED


def test_a_broker_that_is_away_is_waited_for(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.topic()
    rows = [(n, "a", 1, "i") for n in range(1000)]
    with sink(kafka.brokers, topic) as out:
        write(out, rows[:10], epoch(None, 1))
        second = epoch(1, 2)
        report = out.write(second, TASK, [batch(rows[10:500])])
        kafka.kill()
        try:
            with monkeypatch.context() as patches:
                patches.setattr(kafka_producer, "_TRANSACTION_SECONDS", 3.0)
                patches.setattr(kafka_producer, "_ABORT_SECONDS", 1.0)
                with pytest.raises(TransientError) as caught:
                    out.commit(second, [report])
                assert not isinstance(caught.value, Fenced)
                out.abort(second)
            with (
                pytest.raises(TransientError, match=f"cannot be looked up at {kafka.brokers}"),
                sink(kafka.brokers, topic),
            ):
                pass
        finally:
            kafka.start()
        write_until_accepted(out, rows[10:500])
        write(out, rows[500:], epoch(2, 3))
    assert ids(kafka, topic) == list(range(1000))


def write_until_accepted(out: KafkaSink, rows: list[tuple[int, str, int, str]]) -> None:
    one = epoch(1, 2)
    for _ in range(10):
        try:
            write(out, rows, one)
            return
        except TransientError:
            out.abort(one)
    raise AssertionError("never accepted")


def test_positions_of_another_sink_are_not_touched(kafka: KafkaBroker) -> None:
    topic = kafka.topic()
    with sink(kafka.brokers, topic, application=f"{topic}-a") as out:
        write(out, [(1, "a", 1, "i")], epoch(None, 1))
        ledger = out._ledger
        stored = ledger._read_directory(_WAIT)
        assert list(stored.owners) == ["rows:generator"]
        ledger._identity = {"application": topic, "sink": "a-out"}
        with pytest.raises(UserError, match="holds the positions of another sink"):
            ledger._read_directory(_WAIT)
    assert json.loads(json.dumps(stored.owners))
