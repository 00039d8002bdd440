"""From a topic into aggregate tables with two processes: killed at every point, the database taken away, suspended. The
aggregates equal the model."""

from __future__ import annotations

from functools import partial

import pytest

from streamling.testing.crash import POINTS as ALL_POINTS
from support.harness import Workspace
from support.into_aggregates import POINTS, IntoAggregates
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.two_instances import TwoInstances

pytestmark = [pytest.mark.faults, pytest.mark.servers]


def test_crashes_an_outage_and_a_suspended_process_leave_the_aggregates_exact(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    assert {point.partition(":")[0] for point in POINTS} == set(ALL_POINTS)
    aggregates = IntoAggregates(place, kafka, postgres.database(), seed=11, spark=False)
    pair = TwoInstances(place, aggregates)
    # In the first epoch of a process, or in a later one.
    dying = [partial(aggregates.start, f"{point}@{1 + number % 2}") for number, point in enumerate(POINTS)]
    with pair.running(*dying[:2]):
        pair.relay(dying[2:])
        pair.progress()
        postgres.kill()
        postgres.start()
        pair.progress()
        for number in (0, 1):
            pair.at_work(number)
        pair.suspend(0)
        pair.progress()
    assert aggregates.differences() == []
