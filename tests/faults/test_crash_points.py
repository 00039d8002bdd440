"""A process killed at any point of the epoch protocol loses no row and writes none twice after a restart.

The kills follow each other in one directory, as they would in a bad night: each run finds what the one before has left.
"""

from __future__ import annotations

import signal

import pytest
from harness import Workspace
from two_sinks import FORMATS, assert_exact, assert_some_missing_none_doubled, write

from streamling.testing.crash import POINTS, VARIABLE

pytestmark = [pytest.mark.faults, pytest.mark.spark]

# The points of a sink are tried at both sinks: between them one has the rows and the other does not.
AT_SINKS = tuple(f"{point}:{sink}" for point in ("after-write", "before-commit", "after-commit") for sink in FORMATS)
PLACES = ("after-record", *AT_SINKS, "before-finalize", "after-finalize", "before-group-commit")


def test_every_point_of_the_protocol_is_tried() -> None:
    assert {place.partition(":")[0] for place in PLACES} == set(POINTS)


def kill(place: Workspace, point: str, rows: int, settings: dict[str, int]) -> None:
    """Run until the point is reached; rows are left to deliver, and none was written twice."""
    killed = place.run(environment={VARIABLE: point}, **settings)
    assert killed.code == -signal.SIGKILL, f"{point}\n{killed.stderr}"
    assert_some_missing_none_doubled(place, rows, f"after a kill at {point}")


def test_kills_at_every_point_leave_each_row_once(place: Workspace) -> None:
    rows, small, large = 150_000, {"EPOCH__ROWS": 100}, {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 20_000}
    write(place, rows)
    for number, point in enumerate(PLACES):
        # In the first epoch of a process, or in a later one.
        kill(place, f"{point}@{1 + 2 * (number % 2)}", rows, small)
    for number, point in enumerate((AT_SINKS[0], AT_SINKS[3], AT_SINKS[4])):  # while executors write
        kill(place, f"{point}@{2 - number % 2}", rows, large)
    place.run(**large).succeeded()
    assert_exact(place, rows)
