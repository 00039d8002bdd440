"""Signals to a running pipeline: a graceful end where one is asked for, and each row once after a restart."""

from __future__ import annotations

import random
import signal
import time

import pytest
from harness import Child, Finished, Workspace
from two_sinks import assert_exact, differences, write

pytestmark = [pytest.mark.faults, pytest.mark.spark]

# They must last for all starts of a test, also on a machine that is busy.
ROWS = 30_000
RATE = 300
LARGE = {"EPOCH__DRIVER_ROWS": 0}


def under_way(place: Workspace, **settings: object) -> Child:
    """A started process at some moment after its first epochs."""
    child = place.start(**settings)
    child.until_epochs(2)
    time.sleep(random.random())
    return child


def finish(place: Workspace, rows: int = ROWS) -> None:
    """The rest of the rows as fast as they come; then each is there once."""
    write(place, rows)
    place.run().succeeded()
    assert_exact(place, rows)


def stopped(child: Child, began: float) -> Finished:
    finished = child.wait(40).succeeded()
    assert time.monotonic() - began < 27, "longer than the shutdown budget"
    assert "Exception" not in finished.stderr
    return finished


def test_sigterm_and_sigint_to_driver_and_group_end_in_order_and_nothing_comes_again(place: Workspace) -> None:
    write(place, ROWS, rate=RATE)
    for number in (signal.SIGTERM, signal.SIGINT):
        for to_group in (False, True):
            child = under_way(place)
            began = time.monotonic()
            (child.signal_group if to_group else child.signal)(number)
            stopped(child, began)
            assert "__pending:numbers:generator" not in place.state()
    assert differences(place, ROWS)  # it was stopped before the end
    finish(place)


def test_a_stop_while_executors_work_ends_in_order(place: Workspace) -> None:
    write(place, ROWS, rate=RATE)
    child = under_way(place, **LARGE)
    began = time.monotonic()
    child.signal_group(signal.SIGTERM)
    stopped(child, began)
    finish(place)


@pytest.mark.parametrize("delay", [0.0, 1.0, 2.5, 4.5])
def test_a_stop_during_the_start_ends_in_order(place: Workspace, delay: float) -> None:
    write(place, ROWS, rate=RATE)
    child = place.start()
    child.jvm()  # launched after the signal handlers are in place
    time.sleep(delay)
    began = time.monotonic()
    child.signal(signal.SIGTERM)
    finished = stopped(child, began)
    assert "Error" not in finished.stderr


def test_a_killed_driver_takes_its_jvm_and_workers_along(place: Workspace) -> None:
    write(place, ROWS, rate=RATE)
    for settings in ({}, LARGE):
        child = under_way(place, **settings)
        child.signal(signal.SIGKILL)
        assert child.wait().code == -signal.SIGKILL
    finish(place)


def test_a_killed_jvm_ends_the_driver_with_a_clear_message(place: Workspace) -> None:
    write(place, ROWS, rate=RATE)
    for settings in ({}, LARGE):
        child = under_way(place, **settings)
        child.jvm().kill()
        finished = child.wait().failed()
        assert "JVM_FAILED" in finished.stderr
        assert "the Java virtual machine ended" in finished.stderr
    finish(place)


def test_after_a_reset_all_rows_come_again(place: Workspace) -> None:
    rows = 300
    write(place, rows)
    place.run().succeeded()
    assert_exact(place, rows)
    place.run("state", "reset", "--yes").succeeded()
    assert place.state() == {}
    place.run().succeeded()
    assert_exact(place, rows, times=2)
