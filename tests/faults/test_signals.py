"""Signals to a running pipeline: a graceful end where one is asked for, and each row once after a restart."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest

from support.harness import Child, Finished, Workspace, workspace
from support.two_sinks import assert_exact, differences, write
from support.warm_engine import WarmEngine

pytestmark = [pytest.mark.faults, pytest.mark.spark]

# Enough rows for all starts, even on a busy machine.
ROWS = 60_000
RATE = 300
LARGE = {"EPOCH__DRIVER_ROWS": 0}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, warm_engine: WarmEngine) -> Iterator[Workspace]:
    """One for all tests, as in a bad night: each continues what the previous one left, and the last one compares."""
    with workspace(tmp_path_factory.mktemp("place"), warm_engine) as made:
        write(made, ROWS, rate=RATE)
        yield made


def under_way(place: Workspace, **settings: object) -> Child:
    """A started process at some moment after its first epochs."""
    child = place.start(**settings)
    child.until_epochs(2)
    time.sleep(random.random())
    return child


def stopped(child: Child, began: float) -> Finished:
    finished = child.wait(40).succeeded()
    assert time.monotonic() - began < 27, "longer than the shutdown budget"
    assert "Exception" not in finished.stderr
    return finished


@pytest.mark.parametrize(("number", "settings"), [(signal.SIGINT, {}), (signal.SIGTERM, LARGE)])
def test_a_stop_of_the_group_ends_in_order_and_nothing_comes_again(
    place: Workspace, number: signal.Signals, settings: dict[str, int]
) -> None:
    """Java and the workers get the signal, too: in the driver's epochs, and while executors work."""
    child = under_way(place, **settings)
    began = time.monotonic()
    child.signal_group(number)
    stopped(child, began)
    assert "__pending:numbers:generator" not in place.state()


@pytest.mark.parametrize("delay", [0.0, 1.5])
def test_a_stop_during_the_start_ends_in_order(place: Workspace, delay: float) -> None:
    child = place.start()
    child.jvm()  # launched after the signal handlers are in place
    time.sleep(delay)
    began = time.monotonic()
    child.signal(signal.SIGTERM)
    finished = stopped(child, began)
    assert "Error" not in finished.stderr


def test_a_killed_driver_takes_its_jvm_and_workers_along(place: Workspace) -> None:
    child = under_way(place, **LARGE)
    child.signal(signal.SIGKILL)
    assert child.wait().code == -signal.SIGKILL


def test_a_killed_jvm_ends_the_driver_with_a_clear_message(place: Workspace) -> None:
    child = under_way(place, **LARGE)
    child.jvm().kill()
    finished = child.wait().failed()
    assert "JVM_FAILED" in finished.stderr
    assert "the Java virtual machine ended" in finished.stderr


def test_after_all_of_that_each_row_is_there_once_and_after_a_reset_they_come_again(place: Workspace) -> None:
    assert differences(place, ROWS)  # it was stopped before the end
    write(place, ROWS)  # the rest without a rate limit
    place.run().succeeded()
    assert_exact(place, ROWS)
    place.run("state", "reset", "--yes").succeeded()
    assert place.state() == {}
    place.run().succeeded()
    assert_exact(place, ROWS, times=2)
