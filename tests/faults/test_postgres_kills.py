"""From a topic into Postgres with two processes: killed at every point, the database taken away, suspended. The tables
equal the model, and a trigger has seen every change once and in order."""

from __future__ import annotations

from functools import partial

import pytest

from streamling.testing.crash import POINTS as ALL_POINTS
from support.harness import Workspace
from support.into_tables import POINTS, IntoTables
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.two_instances import TwoInstances

pytestmark = [pytest.mark.faults, pytest.mark.servers]


def test_every_point_of_the_protocol_is_tried() -> None:
    assert {point.partition(":")[0] for point in POINTS} == set(ALL_POINTS)


def test_crashes_outages_and_a_suspended_process_leave_the_tables_exact(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    tables = IntoTables(place, kafka, postgres.database(), seed=7, spark=False, every_change=True)
    pair = TwoInstances(place, tables)
    # In the first epoch of a process, or in a later one.
    dying = [partial(tables.start, f"{point}@{1 + number % 2}") for number, point in enumerate(POINTS)]
    with pair.running(*dying[:2]):
        pair.relay(dying[2:])
        pair.progress()
        for take_away in (postgres.kill, postgres.shut_down_at_once, postgres.stop):
            take_away()
            postgres.start()
            pair.progress()
        for number in (0, 1):
            pair.at_work(number)
        pair.suspend(0)
        pair.progress()
    assert tables.differences() == []
