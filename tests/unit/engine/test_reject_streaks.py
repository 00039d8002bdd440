"""Rows that are all rejected in the same way end the run; some bad rows do not."""

from __future__ import annotations

import pytest

from streamling.connector import BadRow
from streamling.engine.protocol.bad_rows import RejectStreak
from streamling.errors import PermanentError


def bad(count: int, cause: str = "23502 owner") -> list[BadRow]:
    return [BadRow("constraint_violation", f"null value {n}", {}, cause=cause) for n in range(count)]


def deliver(streak: RejectStreak, accepted: int, rejected: list[BadRow]) -> None:
    streak.check(accepted, rejected)
    streak.add(accepted, rejected)


def test_an_epoch_of_which_every_row_is_rejected_in_the_same_way_ends_the_run() -> None:
    with pytest.raises(PermanentError, match="the last 10 rows were all rejected") as caught:
        deliver(RejectStreak("out", 10), 0, bad(10))
    assert (caught.value.code, caught.value.node) == ("ALL_ROWS_REJECTED", "out")
    assert "null value 9" in caught.value.message
    assert "epoch.max_same_rejects" in (caught.value.hint or "")


def test_small_epochs_add_up() -> None:
    streak = RejectStreak("out", 10)
    for _ in range(3):
        deliver(streak, 0, bad(3))
        deliver(streak, 0, [])  # no row arrived
    with pytest.raises(PermanentError, match="the last 12 rows"):
        deliver(streak, 0, bad(3))
    with pytest.raises(PermanentError):  # what ended the run has not been counted
        deliver(streak, 0, bad(1))


@pytest.mark.parametrize(
    ("accepted", "rejected"), [(1, []), (1, bad(9)), (0, [*bad(5), *bad(4, "23514 price")]), (0, bad(9, "23503 fk"))]
)
def test_an_accepted_row_or_another_reason_starts_the_count_anew(accepted: int, rejected: list[BadRow]) -> None:
    streak = RejectStreak("out", 10)
    deliver(streak, 0, bad(9))
    deliver(streak, accepted, rejected)
    deliver(streak, 0, bad(9))
    with pytest.raises(PermanentError):
        deliver(streak, 0, bad(1))


def test_without_a_limit_nothing_ends_the_run() -> None:
    deliver(RejectStreak("out", 0), 0, bad(10_000))
