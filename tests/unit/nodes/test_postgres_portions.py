"""Statements become smaller while they take too long, and larger again when there is time for it."""

from __future__ import annotations

import numpy as np
import pytest

from streamling.clients.postgres import StatementTimeout
from streamling.errors import SINK_FAILED
from streamling.sinks.postgres import portions as module
from streamling.sinks.postgres.portions import Portions

CLOCK = [0.0]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "monotonic", lambda: CLOCK[0])


def written(portions: Portions, count: int, seconds_per_row: float) -> list[int]:
    """The sizes of statements, if none of them takes longer than 10 s."""
    sizes = [len(portion) for portion in portions.cut(np.arange(count))]
    for size in sizes:
        with portions.timed(size):
            CLOCK[0] += min(10.0, size * seconds_per_row)
            if size * seconds_per_row > 10:
                raise StatementTimeout(SINK_FAILED, "canceling statement")
    return sizes


def too_long(portions: Portions, count: int, seconds_per_row: float) -> None:
    with pytest.raises(StatementTimeout):
        written(portions, count, seconds_per_row)


def test_all_rows_are_one_statement_as_long_as_that_goes_well() -> None:
    portions = Portions("it", 100, 10)
    for _ in range(3):
        assert written(portions, 200_000, 0.00001) == [200_000]
        portions.epoch_committed()


def test_after_a_timeout_statements_have_fewer_rows_until_they_get_through() -> None:
    portions = Portions("it", 100, 10)
    too_long(portions, 10_000, 0.01)
    too_long(portions, 10_000, 0.01)
    assert written(portions, 10_000, 0.01) == [625] * 16


def test_they_never_have_fewer_rows_than_is_sensible() -> None:
    portions = Portions("it", 100, 10)
    for _ in range(9):
        too_long(portions, 10_000, 1)
    assert portions.rows == 100
    too_long(portions, 60, 1)
    assert portions.rows == 100


def test_they_grow_with_epochs_that_left_enough_time_and_not_within_one() -> None:
    portions = Portions("it", 100, 10)
    too_long(portions, 4000, 0.01)
    assert written(portions, 4000, 0.005) == [1000] * 4
    portions.epoch_committed()
    assert portions.rows == 1000  # half of the time is gone: twice as many rows might not get through
    assert written(portions, 4000, 0.001) == [1000] * 4
    portions.epoch_committed()
    assert written(portions, 4000, 0.001) == [2000] * 2


def test_small_epochs_do_not_tell_how_long_large_ones_take() -> None:
    portions = Portions("it", 100, 10)
    too_long(portions, 4000, 0.01)
    written(portions, 10, 0.01)
    portions.epoch_committed()
    assert portions.rows == 1000
