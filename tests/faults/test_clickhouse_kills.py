"""From a topic into ClickHouse: the process killed at every point, the server killed and frozen."""

from __future__ import annotations

import signal
import time

import pytest

from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace
from support.into_clickhouse import POINTS, IntoClickHouse
from support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.faults, pytest.mark.servers]
ROUND = 70


def test_kills_and_outages_leave_each_change_once(
    place: Workspace, kafka: KafkaBroker, clickhouse: ClickHouseServer
) -> None:
    into = IntoClickHouse(place, kafka, clickhouse.own_database(), seed=11)
    for number, point in enumerate(POINTS):
        into.send(ROUND)
        dying = into.start(f"{point}@{1 + number % 2}")
        assert dying.wait().code == -signal.SIGKILL, point
    last = into.start()
    last.until_epochs(2)
    clickhouse.kill()
    into.send(ROUND)
    time.sleep(1)
    clickhouse.start()
    last.until(lambda: not into.differences(), "everything once after the kill of the server")
    clickhouse.pause()
    into.send(ROUND)
    time.sleep(2)
    clickhouse.resume()
    last.until(lambda: not into.differences(), "everything once after the pause of the server")
    last.signal(signal.SIGTERM)
    last.wait().succeeded()
    assert into.differences() == []
