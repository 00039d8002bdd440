"""Processes with one consumer group divide a topic among themselves, on a real broker."""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamling.clients.kafka import Broker
from streamling.connector import Runtime
from streamling.dev.topics import Message
from streamling.errors import GROUP_SHARED, SOURCE_FAILED, StreamlingError
from streamling.sources.kafka import control, group_watch
from streamling.sources.kafka.group_members import GroupMembers, MemberLabel
from streamling.sources.kafka.membership import Membership
from streamling.sources.kafka.source import KafkaSource
from streamling.spec.settings.blocks import KafkaSourceSettings
from streamling.telemetry.metrics import Metrics
from support.kafka_broker import KafkaBroker
from support.kafka_source_samples import PLENTY, divided, everything, positions_of, source

pytestmark = pytest.mark.servers

JSON = ", data_format: json, schema: {n: int64}"


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def some(kafka: KafkaBroker, topic: str, *numbers: int, partitions: int = 1) -> None:
    kafka.produce(topic, [Message(b'{"n": %d}' % n, partition=n % partitions) for n in numbers])


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4().hex}"


def test_two_members_have_all_partitions_between_them_and_no_rows_twice(kafka: KafkaBroker, group: str) -> None:
    topic = kafka.topic(partitions=4)
    some(kafka, topic, *range(20), partitions=4)
    with source(kafka.brokers, topic, JSON, consumer_group_id=group) as first:
        assert len(divided(first, 4)) == 4
        with source(kafka.brokers, topic, JSON, consumer_group_id=group, own=False) as second:
            mine = divided(first, 2)
            theirs = divided(second, 2)
            assert not mine & theirs
            for events in (first, second):
                events.open({})
            rows = [row["n"] for events in (first, second) for row in everything(events)]  # type: ignore[index]
            assert sorted(rows) == list(range(20))
        assert len(divided(first, 4)) == 4


def test_a_partition_is_not_given_away_while_an_epoch_has_something_of_it(kafka: KafkaBroker, group: str) -> None:
    topic = kafka.topic(partitions=2)
    with source(kafka.brokers, topic, JSON, consumer_group_id=group) as first:
        divided(first, 2)
        with source(kafka.brokers, topic, JSON, consumer_group_id=group, own=False) as second:
            until(lambda: len(first.assigned()) == 1)
            time.sleep(1)
            assert second.assigned() == frozenset()
            divided(first, 1)
            divided(second, 1)


def test_the_next_owner_goes_on_where_latest_was_when_the_first_began(kafka: KafkaBroker, group: str) -> None:
    topic = kafka.topic()
    some(kafka, topic, 1, 2)
    latest = f"{JSON}, starting_offsets: latest"
    with source(kafka.brokers, topic, latest, consumer_group_id=group) as first:
        stored = positions_of(first.offer(PLENTY))
    some(kafka, topic, 3)
    with source(kafka.brokers, topic, latest, stored, consumer_group_id=group) as second:
        assert [row["n"] for row in everything(second)] == [3]  # type: ignore[index]


def test_the_next_owner_leaves_nothing_out_of_a_partition_that_was_empty_at_latest(
    kafka: KafkaBroker, group: str
) -> None:
    topic = kafka.topic()
    latest = f"{JSON}, starting_offsets: latest"
    with source(kafka.brokers, topic, latest, consumer_group_id=group) as first:
        stored = positions_of(first.offer(PLENTY))
        some(kafka, topic, 1)
    with source(kafka.brokers, topic, latest, stored, consumer_group_id=group) as second:
        assert [row["n"] for row in everything(second)] == [1]  # type: ignore[index]


def gauges(metrics: Metrics) -> dict[str, float]:
    return {dict(m.labels)["partition"]: m.value for m in metrics.snapshot() if m.name.endswith("messages_lag")}


def watched(events: KafkaSource) -> Metrics:
    metrics = Metrics()
    events.attach(Runtime("app", {}, metrics))  # type: ignore[arg-type]
    return metrics


def test_the_lag_of_each_partition_is_what_is_not_durable_yet(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    some(kafka, topic, *range(10), partitions=2)
    found: list[Metrics] = []
    with source(
        kafka.brokers, topic, JSON, before=lambda s: found.append(watched(s)), lag_report_interval_ms="50"
    ) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        until(lambda: gauges(found[0]) == {"0": 5.0, "1": 5.0})
        events.committed(offer.slices[:1])
        until(lambda: gauges(found[0]) == {"0": 0.0, "1": 5.0})
        (measured,) = [m for m in found[0].snapshot() if dict(m.labels)["partition"] == "1"]
        assert measured.name == "streamling_kafka_consumer.messages_lag"
        assert dict(measured.labels).items() >= {"id": "Events", "topic": topic, "operator_type": "kafka"}.items()


def test_the_lag_of_a_partition_is_reported_by_its_owner_only(kafka: KafkaBroker, group: str) -> None:
    """ME-05."""
    topic = kafka.topic(partitions=4)
    some(kafka, topic, *range(40), partitions=4)
    found: list[Metrics] = []
    settings = {"lag_report_interval_ms": "50", "consumer_group_id": group}
    with source(kafka.brokers, topic, JSON, before=lambda s: found.append(watched(s)), **settings) as first:
        divided(first, 4)
        first.open({})
        first.offer(PLENTY)
        until(lambda: set(gauges(found[0])) == {"0", "1", "2", "3"})
        with source(
            kafka.brokers, topic, JSON, before=lambda s: found.append(watched(s)), own=False, **settings
        ) as second:
            for one in (first, second):
                divided(one, 2)
                one.open({})
                one.offer(PLENTY)
            until(lambda: [len(gauges(metrics)) for metrics in found] == [2, 2])
            assert set(gauges(found[0])) | set(gauges(found[1])) == {"0", "1", "2", "3"}


def test_rows_that_are_there_and_do_not_come_are_said_to_be_stalled(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    some(kafka, topic, 1, 2, 3)
    with source(kafka.brokers, topic, JSON, stalled_after=1) as events:
        assert events.offer(PLENTY) is not None
        some(kafka, topic, 4, 5)
        with monkeypatch.context() as patches:
            patches.setattr(KafkaSource, "_is_quiet", lambda self: True)  # a client that notices nothing new
            until(lambda: events.offer(PLENTY) is not None or "source Events is stalled: no rows for" in caplog.text)
            assert "lag 2" in (events.trouble() or "")
        until(lambda: events.offer(PLENTY) is not None)
        assert events.trouble() is None


def test_rows_that_nothing_asks_for_or_that_are_not_delivered_yet_are_not_stalled(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """An epoch may take many minutes, in which its rows are read and not delivered, and no others are asked for."""
    topic = kafka.topic()
    some(kafka, topic, 1, 2, 3)
    with source(kafka.brokers, topic, JSON, stalled_after=1) as events:
        assert events.offer(PLENTY) is not None
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert events.offer(PLENTY) is None
            time.sleep(0.05)
        some(kafka, topic, 4, 5)
        time.sleep(3)
        assert events.offer(PLENTY) is not None
        assert events.trouble() is None
    assert "stalled" not in caplog.text


def test_a_member_for_which_no_partition_is_left_has_nothing_to_do(
    kafka: KafkaBroker, group: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamling")
    monkeypatch.setattr(control, "_WATCH_S", 0.1)
    topic = kafka.topic()
    with source(kafka.brokers, topic, JSON, consumer_group_id=group) as first:
        divided(first, 1)
        with source(kafka.brokers, topic, JSON, consumer_group_id=group, own=False) as second:
            until(lambda: "has 2 members for 1 partitions" in caplog.text)
            spare = second if not second.assigned() else first
            until(lambda: spare.trouble() is None)
            time.sleep(1)
            assert spare.trouble() is None
            assert caplog.text.count("members for 1 partitions") <= 2, "one line, or two if the group has divided again"
            assert "no partition of the group" not in caplog.text


def test_an_idle_topic_is_worth_a_word_in_the_debug_log_only(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "streamling")
    topic = kafka.topic()
    with source(kafka.brokers, topic, JSON, first_fetch=1) as events:
        until(lambda: events.offer(PLENTY) is not None or "initial fetch timed out after 1 s" in caplog.text)
        some(kafka, topic, 1)
        until(lambda: [row["n"] for row in everything(events)] == [1])  # type: ignore[index]
    assert not [r for r in caplog.records if r.levelno > logging.DEBUG and "fetch" in r.message]


def test_members_that_cannot_see_each_others_offsets_are_warned_of(
    kafka: KafkaBroker, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(partitions=2)
    with (
        source(kafka.brokers, topic, JSON, consumer_group_id=group) as first,
        source(kafka.brokers, topic, JSON, consumer_group_id=group, own=False) as second,
    ):
        divided(first, 1)
        divided(second, 1)
        until(lambda: "has 2 members, but 1 of them have another state than this process" in caplog.text)


def failure(events: KafkaSource) -> StreamlingError | None:
    try:
        events.assigned()
    except StreamlingError as error:
        return error
    return None


def test_another_application_does_not_get_into_a_group_that_is_in_use(kafka: KafkaBroker, group: str) -> None:
    topic, elsewhere = kafka.topic(partitions=2), kafka.topic()
    some(kafka, topic, *range(10), partitions=2)
    shared = {"consumer_group_id": group, "session_timeout_ms": "3000"}
    with source(kafka.brokers, topic, JSON, application="A", **shared) as first:
        divided(first, 2)
        with (
            source(kafka.brokers, topic, JSON, application="B", own=False, **shared) as second,
            source(kafka.brokers, elsewhere, JSON, application="C", own=False, **shared) as third,
        ):
            until(lambda: failure(second))
            error = failure(second)
            assert error is not None
            assert error.condition is GROUP_SHARED
            assert f"group '{group}-events' of topic '{topic}' is used by application 'A' (host 127.0.0.1)" in str(
                error
            )
            assert "application 'B' would get only some" in str(error)
            assert "consumer_group_id" in (error.hint or "")
            divided(third, 1)  # the group divides each topic by itself
        assert failure(first) is None
        assert len(everything(first)) == 10


def test_an_application_waits_for_one_that_is_about_to_leave_the_group(kafka: KafkaBroker, group: str) -> None:
    topic = kafka.topic()
    with ExitStack() as stack:
        with source(kafka.brokers, topic, JSON, application="A", consumer_group_id=group):
            second = stack.enter_context(
                source(kafka.brokers, topic, JSON, application="B", own=False, consumer_group_id=group)
            )
            until(lambda: "in use by another application" in (second.trouble() or ""))
        divided(second, 1)
        assert second.trouble() is None


def test_two_applications_that_join_at_the_same_time_do_not_both_run(
    kafka: KafkaBroker, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither sees the other before it joins.
    monkeypatch.setattr(GroupMembers, "wait_until_free", lambda *arguments: None)
    topic = kafka.topic(partitions=2)
    with (
        source(kafka.brokers, topic, JSON, application="A", own=False, consumer_group_id=group) as first,
        source(kafka.brokers, topic, JSON, application="B", own=False, consumer_group_id=group) as second,
    ):
        until(lambda: failure(first) or failure(second))
        failures = [failure(events) for events in (first, second)]
        # One of them may find the group without the other, and then stays in it alone.
        assert {error.condition for error in failures if error} == {GROUP_SHARED}
        time.sleep(1)
        assert [failure(events) for events in (first, second)] != [None, None]


def test_a_member_that_does_not_name_its_application_is_warned_of(
    kafka: KafkaBroker, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(partitions=2)
    settings = {"bootstrap.servers": kafka.brokers, "group.id": f"{group}-events", "client.id": "rdkafka"}
    other = Consumer({**settings, "partition.assignment.strategy": "cooperative-sticky"})
    other.subscribe([topic])
    try:
        until(lambda: other.poll(0.2) is None and other.assignment())
        with source(kafka.brokers, topic, JSON, consumer_group_id=group, own=False) as events:
            until(lambda: other.poll(0.2) is None and events.assigned())
            assert "has 1 members that do not name their application" in caplog.text
    finally:
        other.close()


def poll_until(member: Membership, condition: Callable[[], object]) -> None:
    def is_met() -> bool:
        member.poll(0.1)
        return bool(condition())

    until(is_met)


def committed_offset(kafka: KafkaBroker, group: str, topic: str) -> int:
    client = Consumer({"bootstrap.servers": kafka.brokers, "group.id": group})
    try:
        return int(client.committed([TopicPartition(topic, 0)], timeout=10)[0].offset)
    finally:
        client.close()


def test_offsets_are_committed_without_waiting_for_the_broker(kafka: KafkaBroker, group: str) -> None:
    topic = kafka.topic()
    connection = KafkaSourceSettings(brokers=kafka.brokers, session_timeout_ms=30_000)
    gained: set[int] = set()
    member = Membership(
        connection, topic, group, "member", on_gain=gained.update, on_loss=lambda partitions, late: None
    )
    poll_until(member, lambda: gained)
    kafka.pause()
    try:
        began = time.monotonic()
        member.commit({0: 7})
        member.commit({0: 8})
        assert time.monotonic() - began < 2
    finally:
        kafka.resume()

    def is_committed() -> bool:
        member.commit({})
        return committed_offset(kafka, group, topic) == 8

    poll_until(member, is_committed)
    member.commit({0: 9})
    member.close()
    assert committed_offset(kafka, group, topic) == 9


def test_a_broker_that_does_not_answer_does_not_keep_a_member_from_ending(kafka: KafkaBroker, group: str) -> None:
    topic = kafka.topic()
    some(kafka, topic, 1, 2)
    with source(kafka.brokers, topic, JSON, consumer_group_id=group) as events:
        offer = events.offer(PLENTY)
        assert offer is not None
        kafka.pause()
        try:
            events.committed(offer.slices)
            time.sleep(1)  # until the control thread has sent the commit
            began = time.monotonic()
            events.close()
            assert time.monotonic() - began < 40
        finally:
            kafka.resume()


def test_a_member_says_what_it_waits_for_while_the_broker_is_away(kafka: KafkaBroker, group: str) -> None:
    topic = kafka.topic()
    with source(kafka.brokers, topic, JSON, consumer_group_id=group, session_timeout_ms="2000") as events:
        kafka.stop()
        try:
            until(lambda: f"no partition of the group '{group}-events' is assigned: " in (events.trouble() or ""), 60)
            assert "cannot be looked up at" in (events.trouble() or "")
        finally:
            kafka.start()
        until(events.assigned, 60)
        until(lambda: events.trouble() is None)


def test_a_client_that_has_lost_its_group_is_replaced(
    kafka: KafkaBroker, group: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    some(kafka, topic, 1, 2, 3)
    monkeypatch.setattr(group_watch, "_ABSENT_S", 1.0)
    monkeypatch.setattr(control, "_WATCH_S", 0.2)
    is_lost = threading.Event()
    poll = Membership.poll

    def lose(member: Membership, seconds: float) -> None:
        """The client leaves the group, and will not join it again by itself."""
        if is_lost.is_set():
            is_lost.clear()
            member._consumer.unsubscribe()
        poll(member, seconds)

    monkeypatch.setattr(Membership, "poll", lose)
    with source(kafka.brokers, topic, JSON, consumer_group_id=group) as events:
        events.own(frozenset())  # no epoch has rows of it
        is_lost.set()
        until(lambda: not events.assigned())
        until(lambda: "this process is not yet a member; the group has 0 members" in (events.trouble() or ""))
        divided(events, 1)
        assert "not a member of the group, although its coordinator answers, for " in caplog.text
        until(lambda: events.trouble() is None)
        events.open({})
        assert len(everything(events)) == 3


def test_a_member_leaves_a_rebalance_that_does_not_end(
    kafka: KafkaBroker, group: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As another client of the group could cause it: one that joins, never divides the partitions, and stays."""
    topic = kafka.topic()
    monkeypatch.setattr(group_watch, "_REBALANCING_S", 1.0)
    seen = Broker.group
    monkeypatch.setattr(Broker, "group", lambda *arguments: seen(*arguments)._replace(state="CompletingRebalance"))
    broker = Broker(KafkaSourceSettings(brokers=kafka.brokers), topic, SOURCE_FAILED)
    gained: list[frozenset[int]] = []
    member = Membership(
        KafkaSourceSettings(brokers=kafka.brokers),
        topic,
        group,
        "member",
        on_gain=gained.append,
        on_loss=lambda partitions, late: None,
    )
    members = GroupMembers(broker, "events", group, MemberLabel("app", topic, "state"))
    watch = group_watch.GroupWatch(broker, members, member, "events", group)
    poll_until(member, lambda: gained)
    first = member.member_id
    assert "has 1 members and is in the state CompletingRebalance" in (watch.look() or "")
    time.sleep(1)
    watch.look()
    assert re.search(r"the group does not finish its rebalance, for \d+ s; joining again with a new", caplog.text)
    poll_until(member, lambda: len(gained) > 1)
    assert member.member_id != first
    member.close()
