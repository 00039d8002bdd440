"""Two processes with one application id: the stale one is fenced, and each row is delivered once."""

from __future__ import annotations

import signal

import pytest

from support.harness import Child, Workspace
from support.two_sinks import assert_exact, write

pytestmark = pytest.mark.faults

# A quarter of a minute of work, while the other process sleeps, wakes up, or works too.
ROWS, RATE = 1200, 80
TAKEOVER = {"EPOCH__TAKEOVER_MS": 2000}


def test_suspended_processes_wake_up_to_another_owner_and_nothing_is_doubled(place: Workspace) -> None:
    write(place, ROWS, rate=RATE, sql=False)
    first = place.start(spark=False, **TAKEOVER)
    first.until_epochs(3)
    place.suspend(first)
    second = place.start(spark=False, **TAKEOVER)
    second.until_epochs(3)
    first.signal(signal.SIGCONT)
    # It notices that it was fenced. From here on both are awake and compete for the rows.
    first.until(lambda: "an epoch was abandoned" in first.stderr, "the end of its epoch")
    _more(second)
    place.suspend(second, group=True)
    _more(first)
    second.signal_group(signal.SIGCONT)
    for child in (first, second):
        child.wait().succeeded()
    assert_exact(place, ROWS)


def _more(child: Child) -> None:
    child.until_epochs(child.epochs + 3)
