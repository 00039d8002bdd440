"""A backfill from ClickHouse that is killed: each row of the table is in both targets once."""

from __future__ import annotations

import signal

import pytest

from support.backfill import Backfill
from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

ROWS = 60_000
LARGE = {"spark": True, "EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 20_000}


@pytest.fixture
def backfill(place: Workspace, clickhouse: ClickHouseServer, postgres: PostgresServer) -> Backfill:
    return Backfill(place, clickhouse, postgres.database(), ROWS)


def test_kills_inside_and_outside_of_a_hot_key_leave_each_row_once(
    backfill: Backfill, clickhouse: ClickHouseServer
) -> None:
    for point, rows in (
        ("after-record@2", 100),
        ("after-write:history@2", 7000),
        ("after-commit:kept@2", 7000),
        ("before-commit:history@2", 3000),
        ("before-finalize@1", 5000),
    ):
        killed = backfill.start(point, EPOCH__ROWS=rows).wait()
        assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"
    backfill.start(EPOCH__ROWS=10_000).wait().succeeded()
    assert backfill.differences() == []


def test_kills_while_executors_read_leave_each_row_once(backfill: Backfill) -> None:
    killed = backfill.start("after-commit:kept@2", **LARGE).wait()
    assert killed.code == -signal.SIGKILL, killed.stderr
    backfill.start(**LARGE).wait().succeeded()
    assert backfill.differences() == []
