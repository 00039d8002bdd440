"""From a topic into topics with two processes: killed at every point, suspended, the broker killed and frozen. A
consumer of committed messages sees each change once, and those of a key in order."""

from __future__ import annotations

import time
from functools import partial

import pytest

from streamling.testing.crash import POINTS as ALL_POINTS
from support.harness import Workspace
from support.into_topics import POINTS, IntoTopics
from support.kafka_broker import KafkaBroker
from support.two_instances import TwoInstances

pytestmark = [pytest.mark.faults, pytest.mark.servers]


def test_every_point_of_the_protocol_is_tried() -> None:
    assert {point.partition(":")[0] for point in POINTS} == set(ALL_POINTS)


def test_crashes_outages_and_a_suspended_process_leave_each_change_once(place: Workspace, kafka: KafkaBroker) -> None:
    topics = IntoTopics(place, kafka, seed=7)
    pair = TwoInstances(place, topics)
    # In the first epoch of a process, or in a later one.
    dying = [partial(topics.start, f"{point}@{1 + number % 2}") for number, point in enumerate(POINTS)]
    with pair.running(*dying[:2]):
        pair.relay(dying[2:])
        pair.progress()
        kafka.kill()
        kafka.start()
        pair.progress()
        kafka.pause()
        time.sleep(8)
        kafka.resume()
        pair.progress()
        for number in (0, 1):
            pair.at_work(number)
        pair.suspend(0)
        pair.progress()
    assert topics.differences() == []
