"""A process killed at any point of the epoch protocol has lost nothing and doubled nothing after a restart."""

from __future__ import annotations

import signal

import pytest
from harness import Workspace
from two_sinks import assert_exact, differences, write

from streamling.testing.crash import POINTS, VARIABLE

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 800
# Eight epochs without waiting for any.
SMALL = {"EPOCH__ROWS": 100}
PLACES = (
    "after-record",
    "after-write:parquet",
    "after-write:json",
    "before-commit:parquet",
    "before-commit:json",
    "after-commit:parquet",
    "after-commit:json",
    "before-finalize",
    "after-finalize",
    "before-group-commit",
)


def test_every_point_of_the_protocol_is_tried() -> None:
    assert {place.partition(":")[0] for place in PLACES} == set(POINTS)


@pytest.mark.parametrize("point", PLACES)
def test_a_kill_in_the_first_epoch_and_again_in_a_later_one_leaves_each_row_once(place: Workspace, point: str) -> None:
    write(place, ROWS)
    for count in (1, 3):
        killed = place.run(environment={VARIABLE: f"{point}@{count}"}, **SMALL)
        assert killed.code == -signal.SIGKILL, killed.stderr
        assert differences(place, ROWS)  # there is something left to do
    place.run(**SMALL).succeeded()
    assert_exact(place, ROWS)


@pytest.mark.parametrize("point", ["after-write:json", "after-commit:parquet"])
def test_a_kill_while_executors_write_leaves_each_row_once(place: Workspace, point: str) -> None:
    rows = 60_000
    write(place, rows)
    large = {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 25_000}
    killed = place.run(environment={VARIABLE: f"{point}@2"}, **large)
    assert killed.code == -signal.SIGKILL, killed.stderr
    place.run(**large).succeeded()
    assert_exact(place, rows)
