"""An epoch closes when the batch policy of every sink is met, or when it must."""

from __future__ import annotations

import math

import pytest

from streamling.connector import BatchPolicy
from streamling.engine.protocol.closing import Buffered, Timing, closes, seconds_to_gather, wait_seconds

ROWS, SECONDS = BatchPolicy(100, None), BatchPolicy(None, 1.0)
BOTH = BatchPolicy(100, 1.0)


def buffer(
    rows: int, waited: float = 0.0, *, full: bool = False, last: bool = False, gathering: float | None = None
) -> Buffered:
    return Buffered(rows, waited, full, last, gathering)


CASES = {
    "nothing buffered never closes": (buffer(0), [], 99.0, False),
    "nothing buffered never closes, even at the end": (buffer(0, last=True), [], 99.0, False),
    "without policies a row closes once the batch interval is over": (buffer(1), [], 0.1, True),
    "without policies the batch interval is waited for": (buffer(1), [], 0.09, False),
    "a full buffer closes whatever the policies": (buffer(5, full=True), [(BOTH, 1.0)], 0.0, True),
    "the last rows close whatever the policies": (buffer(1, last=True), [(BOTH, 1.0)], 0.0, True),
    "a due checkpoint closes whatever the policies": (buffer(1, 5.0), [(ROWS, 1.0)], 0.0, True),
    "before the checkpoint is due rows are waited for": (buffer(99, 4.99), [(ROWS, 1.0)], 99.0, False),
    "enough rows close": (buffer(100), [(BOTH, 1.0)], 0.0, True),
    "too few rows do not": (buffer(99), [(BOTH, 1.0)], 99.0, False),
    "long enough closes with few rows": (buffer(1, 1.0), [(BOTH, 1.0)], 0.0, True),
    "not long enough does not": (buffer(1, 0.99), [(SECONDS, 1.0)], 99.0, False),
    "every policy must be met": (buffer(100), [(ROWS, 1.0), (BatchPolicy(101, None), 1.0)], 99.0, False),
    "policies may be met in different ways": (buffer(100, 1.0), [(ROWS, 1.0), (SECONDS, 1.0)], 0.0, True),
    "rows that a filter drops do not count": (buffer(199), [(ROWS, 0.5)], 99.0, False),
    "rows after a filter count by their share": (buffer(200), [(ROWS, 0.5)], 0.0, True),
    "a source that gathers is waited for": (buffer(100, 1.0, gathering=0.5), [(BOTH, 1.0)], 99.0, False),
    "a source that has gathered enough waits for no interval": (buffer(1, gathering=0.0), [], 0.0, True),
    "a source that has gathered enough leaves it to the sinks": (buffer(1, gathering=0.0), [(ROWS, 1.0)], 99.0, False),
    "a due checkpoint closes what is being gathered": (buffer(1, 5.0, gathering=9.0), [], 0.0, True),
    "the last rows close what is being gathered": (buffer(1, last=True, gathering=9.0), [], 0.0, True),
    "rows that an unnest multiplies count by their share": (buffer(50), [(ROWS, 2.0)], 0.0, True),
}


@pytest.mark.parametrize("case", CASES)
def test_closing(case: str) -> None:
    buffered, policies, since, expected = CASES[case]
    assert closes(buffered, policies, Timing(since, checkpoint_interval=5, batch_interval=0.1)) is expected


@pytest.mark.parametrize(
    ("buffered", "policies", "since", "expected"),
    [
        (buffer(0), [(SECONDS, 1.0)], 9.0, 60.0),  # rows wake the loop
        (buffer(1, 0.0), [(SECONDS, 1.0)], 9.0, 1.0),
        (buffer(1, 0.96), [(SECONDS, 1.0)], 9.0, 0.04),
        (buffer(1, 2.0), [(SECONDS, 1.0), (ROWS, 1.0)], 9.0, 3.0),  # the checkpoint
        (buffer(1, 4.9995), [(ROWS, 1.0)], 9.0, 0.001),
        (buffer(1), [], 0.04, 0.06),
        (buffer(1), [], 0.2, 0.001),
        (buffer(1, gathering=0.3), [], 9.0, 0.3),
        (buffer(1, 4.0, gathering=9.0), [(ROWS, 1.0)], 9.0, 1.0),  # the checkpoint
    ],
)
def test_the_loop_looks_again_when_the_next_thing_falls_due(
    buffered: Buffered, policies: list[tuple[BatchPolicy, float]], since: float, expected: float
) -> None:
    timing = Timing(since, checkpoint_interval=5, batch_interval=0.1)
    assert wait_seconds(buffered, policies, timing) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("policy", "rows", "waited", "expected"),
    [(BOTH, 99, 0.25, 0.75), (BOTH, 100, 0.0, 0.0), (BOTH, 1, 1.0, 0.0), (ROWS, 99, 9.0, math.inf)],
)
def test_a_source_gathers_until_it_has_enough_rows_or_has_waited_long_enough(
    policy: BatchPolicy, rows: int, waited: float, expected: float
) -> None:
    assert seconds_to_gather(policy, rows, waited) == expected
