"""A process killed at any point of the epoch protocol loses no row and writes none twice after a restart.

The kills follow each other in one directory, as they would in a bad night: each run finds what the one before has left.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

import pytest

from streamling.testing.crash import POINTS, VARIABLE
from support.crash_places import all_places, places_at
from support.harness import Workspace
from support.two_sinks import FORMATS, assert_exact, assert_some_missing_none_doubled, write

pytestmark = [pytest.mark.faults, pytest.mark.spark]

AT_SINKS = places_at(FORMATS)
SMALL = {"EPOCH__ROWS": 100}
LARGE = {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 20_000}
PLACES = all_places(FORMATS)


def test_every_point_of_the_protocol_is_tried() -> None:
    assert {place.partition(":")[0] for place in PLACES} == set(POINTS)


def kill(place: Workspace, point: str, rows: int, settings: Mapping[str, object], *, spark: bool) -> None:
    """Run until the point is reached; something is left to do, and nothing is there twice."""
    killed = place.start(environment={VARIABLE: point}, spark=spark, **settings).wait()
    assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"
    assert_some_missing_none_doubled(place, rows, f"after a kill at {point}")


def test_kills_at_every_point_leave_each_row_once(place: Workspace) -> None:
    """In the first epoch of a process, or in a later one; at each point of a sink both."""
    rows = 20_000
    write(place, rows, sql=False)
    for number, point in enumerate(PLACES):
        kill(place, f"{point}@{1 + 2 * (number % 2)}", rows, SMALL, spark=False)
    place.start(spark=False).wait().succeeded()
    assert_exact(place, rows)


def test_kills_while_spark_computes_leave_each_row_once(place: Workspace) -> None:
    """In epochs that the driver computes, then in such that executors read, process and write."""
    rows = 150_000
    write(place, rows)
    kill(place, "after-record@3", rows, SMALL, spark=True)
    kill(place, f"{AT_SINKS[3]}@1", rows, SMALL, spark=True)
    kill(place, f"{AT_SINKS[0]}@2", rows, LARGE, spark=True)
    kill(place, f"{AT_SINKS[4]}@1", rows, LARGE, spark=True)
    place.run(**LARGE).succeeded()
    assert_exact(place, rows)
