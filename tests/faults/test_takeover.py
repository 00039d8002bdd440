"""Two processes with one application id: whoever is stale gives way, and the rows are there once."""

from __future__ import annotations

import signal
import time

import pytest
from harness import Child, Workspace
from two_sinks import assert_exact, write

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 4000
RATE = 80
SUSPENDED_S = 30.0


@pytest.mark.parametrize("who", ["driver", "group"])
def test_a_suspended_process_wakes_up_to_another_owner_and_nothing_is_doubled(place: Workspace, who: str) -> None:
    write(place, ROWS, rate=RATE)
    first = place.start()
    first.until_epochs(3)
    place.suspend(first, group=who == "group")
    began = time.monotonic()
    second = place.start()
    second.until_epochs(3)
    time.sleep(max(0.0, SUSPENDED_S - (time.monotonic() - began)))
    (first.signal_group if who == "group" else first.signal)(signal.SIGCONT)
    _end_of_both(first, second)
    assert_exact(place, ROWS)


def test_two_processes_at_once_share_the_work_and_nothing_is_doubled(place: Workspace) -> None:
    write(place, 2000, rate=80)
    first, second = place.start(), place.start()
    _end_of_both(first, second)
    assert_exact(place, 2000)


def _end_of_both(first: Child, second: Child) -> None:
    for child in (first, second):
        child.wait().succeeded()
