"""Each row is counted once, by the process that finalizes its epoch, whichever process has delivered it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from streamling.testing.crash import VARIABLE
from support.harness import Workspace
from support.otlp_receiver import Receiver, http_receiver
from support.two_sinks import FORMATS, assert_exact, model, write

pytestmark = pytest.mark.faults

NODES = ("numbers", "sided", "again", *FORMATS)
TAKEOVER = {"EPOCH__TAKEOVER_MS": 2000}


class Receivers:
    """One for each process."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._all: list[Receiver] = []

    def settings(self) -> dict[str, object]:
        """For the next process. It sends its metrics once, at its end: nothing, if it is killed."""
        self._all.append(self._stack.enter_context(http_receiver()))
        return {
            "OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT": self._all[-1].endpoint,
            "OPEN_TELEMETRY_METRICS__BATCH_INTERVAL_SECS": 600,
        }

    def counted(self, name: str) -> dict[str, int]:
        """By node: the sum over all processes."""
        counts: Counter[str] = Counter()
        for receiver in self._all:
            counts.update({one.labels["id"]: int(one.value) for one in receiver.series(f"streamling_{name}")})
        return dict(counts)


@pytest.fixture
def receivers() -> Iterator[Receivers]:
    with ExitStack() as stack:
        yield Receivers(stack)


def assert_each_row_is_counted_once(receivers: Receivers, rows: int) -> None:
    owed = len(model(rows))
    assert receivers.counted("output_rows") == dict.fromkeys(NODES, owed)
    assert receivers.counted("input_rows") == dict.fromkeys(NODES[1:], owed)
    assert receivers.counted("rows_unaccounted") == {}


@pytest.mark.parametrize("point", ["after-commit:parquet", "after-commit:json", "before-finalize"])
def test_rows_of_an_epoch_that_sinks_have_are_counted_after_a_restart(
    place: Workspace, receivers: Receivers, point: str
) -> None:
    """One sink has the epoch, or both have it; the other process was killed before it could count anything."""
    rows = 400
    write(place, rows, sql=False)
    place.start(environment={VARIABLE: f"{point}@1"}, spark=False, **receivers.settings()).wait()
    done = place.start(spark=False, **receivers.settings()).wait().succeeded()
    assert "replaying it for: " in done.stderr
    assert_exact(place, rows)
    assert_each_row_is_counted_once(receivers, rows)


def test_rows_that_two_processes_compete_for_are_counted_once(place: Workspace, receivers: Receivers) -> None:
    rows = 600
    write(place, rows, rate=60, sql=False)
    first = place.start(spark=False, **TAKEOVER, **receivers.settings())
    first.until_epochs(3)
    place.suspend(first)
    second = place.start(spark=False, **TAKEOVER, **receivers.settings())
    second.until_epochs(3)
    first.signal(signal.SIGCONT)
    first.until(lambda: "an epoch was abandoned" in first.stderr, "the end of its epoch")
    for child in (first, second):
        child.wait().succeeded()
    assert_exact(place, rows)
    assert_each_row_is_counted_once(receivers, rows)
