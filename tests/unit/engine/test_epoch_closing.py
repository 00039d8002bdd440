"""An epoch closes when every sink that waits for something has it, or when it must."""

from __future__ import annotations

import math

import pytest

from streamling.connector import BatchPolicy
from streamling.engine.protocol.closing import InHand, Timing, closes, patience, still_gathering

ROWS, SECONDS = BatchPolicy(100, None), BatchPolicy(None, 1.0)
BOTH = BatchPolicy(100, 1.0)


def hand(
    rows: int, waited: float = 0.0, *, full: bool = False, last: bool = False, gathering: float | None = None
) -> InHand:
    return InHand(rows, waited, full, last, gathering)


CASES = {
    "nothing in hand never closes": (hand(0), [], 99.0, False),
    "nothing in hand never closes, even at the end": (hand(0, last=True), [], 99.0, False),
    "without wishes a row closes once the batch interval is over": (hand(1), [], 0.1, True),
    "without wishes the batch interval is waited for": (hand(1), [], 0.09, False),
    "a full buffer closes whatever is wished": (hand(5, full=True), [(BOTH, 1.0)], 0.0, True),
    "the last rows close whatever is wished": (hand(1, last=True), [(BOTH, 1.0)], 0.0, True),
    "a due checkpoint closes whatever is wished": (hand(1, 5.0), [(ROWS, 1.0)], 0.0, True),
    "before the checkpoint is due rows are waited for": (hand(99, 4.99), [(ROWS, 1.0)], 99.0, False),
    "enough rows close": (hand(100), [(BOTH, 1.0)], 0.0, True),
    "too few rows do not": (hand(99), [(BOTH, 1.0)], 99.0, False),
    "long enough closes with few rows": (hand(1, 1.0), [(BOTH, 1.0)], 0.0, True),
    "not long enough does not": (hand(1, 0.99), [(SECONDS, 1.0)], 99.0, False),
    "every wish must be granted": (hand(100), [(ROWS, 1.0), (BatchPolicy(101, None), 1.0)], 99.0, False),
    "wishes may be granted in different ways": (hand(100, 1.0), [(ROWS, 1.0), (SECONDS, 1.0)], 0.0, True),
    "rows that a filter drops do not count": (hand(199), [(ROWS, 0.5)], 99.0, False),
    "rows behind a filter count by their share": (hand(200), [(ROWS, 0.5)], 0.0, True),
    "a source that gathers is waited for": (hand(100, 1.0, gathering=0.5), [(BOTH, 1.0)], 99.0, False),
    "a source that has gathered enough waits for no interval": (hand(1, gathering=0.0), [], 0.0, True),
    "a source that has gathered enough leaves it to the sinks": (hand(1, gathering=0.0), [(ROWS, 1.0)], 99.0, False),
    "a due checkpoint closes what is being gathered": (hand(1, 5.0, gathering=9.0), [], 0.0, True),
    "the last rows close what is being gathered": (hand(1, last=True, gathering=9.0), [], 0.0, True),
    "rows that an unnest multiplies count by their share": (hand(50), [(ROWS, 2.0)], 0.0, True),
}


@pytest.mark.parametrize("case", CASES)
def test_closing(case: str) -> None:
    in_hand, wishes, since, expected = CASES[case]
    assert closes(in_hand, wishes, Timing(since, checkpoint_interval=5, batch_interval=0.1)) is expected


@pytest.mark.parametrize(
    ("in_hand", "wishes", "since", "expected"),
    [
        (hand(0), [(SECONDS, 1.0)], 9.0, 60.0),  # rows wake the loop
        (hand(1, 0.0), [(SECONDS, 1.0)], 9.0, 1.0),
        (hand(1, 0.96), [(SECONDS, 1.0)], 9.0, 0.04),
        (hand(1, 2.0), [(SECONDS, 1.0), (ROWS, 1.0)], 9.0, 3.0),  # the checkpoint
        (hand(1, 4.9995), [(ROWS, 1.0)], 9.0, 0.001),
        (hand(1), [], 0.04, 0.06),
        (hand(1), [], 0.2, 0.001),
        (hand(1, gathering=0.3), [], 9.0, 0.3),
        (hand(1, 4.0, gathering=9.0), [(ROWS, 1.0)], 9.0, 1.0),  # the checkpoint
    ],
)
def test_the_loop_looks_again_when_the_next_thing_falls_due(
    in_hand: InHand, wishes: list[tuple[BatchPolicy, float]], since: float, expected: float
) -> None:
    timing = Timing(since, checkpoint_interval=5, batch_interval=0.1)
    assert patience(in_hand, wishes, timing) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("wish", "rows", "waited", "expected"),
    [(BOTH, 99, 0.25, 0.75), (BOTH, 100, 0.0, 0.0), (BOTH, 1, 1.0, 0.0), (ROWS, 99, 9.0, math.inf)],
)
def test_a_source_gathers_until_it_has_enough_rows_or_has_waited_long_enough(
    wish: BatchPolicy, rows: int, waited: float, expected: float
) -> None:
    assert still_gathering(wish, rows, waited) == expected
