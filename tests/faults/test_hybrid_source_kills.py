"""A backfill with a hand-over to a topic that is killed at every step: each row is in both sinks once."""

from __future__ import annotations

import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace
from support.hybrid_samples import INTO_FILES, History, differences, source
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.servers]

POINTS = ("after-record@1", "after-write:json@1", "after-commit:parquet@1", "before-finalize@1", "after-finalize@1")


@pytest.fixture
def history(clickhouse: ClickHouseServer, kafka: KafkaBroker, schema_registry: SchemaRegistry) -> History:
    return History(clickhouse, kafka, schema_registry)


def crash(place: Workspace, point: str, **settings: object) -> None:
    killed = place.start(environment={VARIABLE: point}, spark=False, **settings).wait()
    assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr[-3000:]}"


def finish(place: Workspace, history: History, **settings: object) -> None:
    """Run until every row is in both sinks."""
    child = place.start(spark=False, **settings)
    child.until(lambda: "resuming from the stored positions" in child.stderr, "a start")
    for sink in ("parquet", "json"):
        child.until(lambda sink=sink: place.count(sink, sink) >= history.copied, f"all rows in {sink}")
    child.signal(signal.SIGTERM)
    child.wait().succeeded()


def test_kills_in_the_backfill_and_at_the_hand_over_leave_each_row_once(place: Workspace, history: History) -> None:
    history.copy(4000)
    place.write(source(history) + INTO_FILES)
    settings = history.settings() | {"EPOCH__ROWS": 700}
    with history.copying(rows=20, pause=0.2):
        for point in POINTS[:3]:
            crash(place, point, **settings)  # before anything is stored, and with the first rows
        crash(place, "before-finalize@3", **settings)
        crash(place, "after-commit:parquet@2", **settings)
        for _ in range(2):  # the rest of the table is less than this many epochs, and so is the hand-over
            for point in POINTS:
                crash(place, point, **settings)
    finish(place, history, **settings)
    assert differences(place, history) == []


@pytest.mark.parametrize("point", POINTS[1:4])
@pytest.mark.parametrize("epoch", [1, 2])
def test_a_kill_at_each_step_of_the_hand_over_leaves_each_row_once(
    place: Workspace, history: History, point: str, epoch: int
) -> None:
    """The table and the record of the phase are in one epoch or in two, and the topic in the next."""
    history.copy(20)
    history.produce(20, 5)
    history.copied += 5
    place.write(source(history) + INTO_FILES)
    crash(place, point.replace("@1", f"@{epoch}"), **history.settings())
    finish(place, history, **history.settings())
    assert differences(place, history) == []


def test_kills_while_executors_read_the_table_leave_each_row_once(place: Workspace, history: History) -> None:
    history.copy(40_000)
    place.write(source(history) + INTO_FILES)
    settings = history.settings() | {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 15_000}
    for point in ("after-commit:parquet@2", "before-finalize@2"):
        killed = place.run(environment={VARIABLE: point}, **settings)
        assert killed.code == -signal.SIGKILL, killed.stderr[-3000:]
    history.produce(40_000, 2000)
    history.copied += 2000
    child = place.start(**settings)
    for sink in ("parquet", "json"):
        child.until(lambda sink=sink: place.count(sink, sink) >= history.copied, f"all rows in {sink}")
    child.signal(signal.SIGTERM)
    child.wait().succeeded()
    assert differences(place, history) == []
