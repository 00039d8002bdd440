"""A backfill from ClickHouse that is killed: each row of the table is in both sinks once."""

from __future__ import annotations

import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

ROWS = 60_000
SINKS = ("parquet", "json")
PIPELINE = """\
sources:
  s: {type: clickhouse, table_name: t, columns: 'k, id'}
sinks:
  parquet: {type: file, from: s, path: parquet, format: parquet}
  json: {type: file, from: s, path: json, format: json}
"""
LARGE = {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 20_000}


def prepared(place: Workspace, clickhouse: ClickHouseServer) -> dict[str, object]:
    """A table with versions, a key with half of all rows, and keys below zero."""
    database = clickhouse.database()
    clickhouse.execute(
        f"CREATE TABLE {database}.t (k Int64, id UInt32, v UInt8, dead UInt8) "
        "ENGINE = ReplacingMergeTree(v, dead) ORDER BY (k, id)"
    )
    for version in (1, 2):
        clickhouse.execute(
            f"INSERT INTO {database}.t SELECT if(number % 2, 0, number - 30000) AS k, number, {version}, 0 "
            f"FROM numbers({ROWS})"
        )
    clickhouse.execute(f"INSERT INTO {database}.t SELECT 0, number, 3, 1 FROM numbers({ROWS}) WHERE number % 20 = 1")
    place.write(PIPELINE)
    return clickhouse.settings(database)


def assert_exact(place: Workspace) -> None:
    owed = sorted((0 if n % 2 else n - 30_000, n) for n in range(ROWS) if n % 20 != 1)
    for sink in SINKS:
        assert sorted((row["k"], row["id"]) for row in place.rows(sink, sink)) == owed


def test_kills_inside_and_outside_of_a_hot_key_leave_each_row_once(
    place: Workspace, clickhouse: ClickHouseServer
) -> None:
    settings = prepared(place, clickhouse)
    for point, rows in (
        ("after-record@2", 100),
        ("after-write:json@2", 7000),
        ("after-commit:parquet@2", 7000),
        ("before-finalize@1", 5000),
    ):
        killed = place.start(environment={VARIABLE: point}, spark=False, EPOCH__ROWS=rows, **settings).wait()
        assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"
    clickhouse.execute("SYSTEM START MERGES")
    place.start(spark=False, EPOCH__ROWS=10_000, **settings).wait().succeeded()
    assert_exact(place)


def test_kills_while_executors_read_leave_each_row_once(place: Workspace, clickhouse: ClickHouseServer) -> None:
    settings = prepared(place, clickhouse)
    killed = place.run(environment={VARIABLE: "after-commit:parquet@2"}, **LARGE, **settings)
    assert killed.code == -signal.SIGKILL, killed.stderr
    place.run(**LARGE, **settings).succeeded()
    assert_exact(place)
