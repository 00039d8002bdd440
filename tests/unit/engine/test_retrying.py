"""A transient failure is retried, with growing pauses, until it succeeds or the run stops."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from streamling.errors import SINK_FAILED, STATE_MOVED, Fenced, PermanentError, StreamlingError, TransientError
from streamling.retry import look_up, pause, retry

FAILED = TransientError(SINK_FAILED, "not now")


def failing(times: int, error: Exception = FAILED) -> Callable[[], str]:
    """An action that fails that often, then succeeds."""
    left = [error] * times

    def action() -> str:
        if left:
            raise left.pop()
        return "done"

    return action


def attempted(action: Callable[[], str], **more: object) -> tuple[object, list[float]]:
    """The result or error of an action, and the pauses made for it."""
    pauses: list[float] = []
    arguments = {"what": "it", "stopping": lambda: False, "sleep": pauses.append} | more
    try:
        return retry(action, **arguments), pauses
    except StreamlingError as error:
        return error, pauses


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [
        (1, 0.107),
        (2, 0.214),
        (3, 0.421),
        (8, 12.856),
        (9, 25.663),
        (10, 30.0),
        (99, 30.0),
        (100, 30.0),
        (100_000, 30.0),
    ],
)
def test_pauses_double_from_100_ms_with_a_spread_and_never_exceed_30_s(attempt: int, seconds: float) -> None:
    assert pause(attempt) == pytest.approx(seconds)


def test_a_success_needs_no_pause() -> None:
    assert attempted(failing(0)) == ("done", [])


def test_transient_failures_are_repeated_until_it_works() -> None:
    assert attempted(failing(3)) == ("done", [pause(1), pause(2), pause(3)])


@pytest.mark.parametrize("error", [Fenced(STATE_MOVED, "gone"), PermanentError(SINK_FAILED, "never")])
def test_fencing_and_permanent_errors_are_passed_on_at_once(error: StreamlingError) -> None:
    cleaned: list[int] = []
    assert attempted(failing(1, error), clean_up=lambda: cleaned.append(1)) == (error, [])
    assert cleaned == []


def test_where_the_cause_was_put_aside_no_pause_is_longer_than_5_s() -> None:
    remedied = TransientError(SINK_FAILED, "the connection was dead")
    remedied.remedied = True
    assert attempted(failing(9, remedied))[1] == [min(pause(attempt), 5.0) for attempt in range(1, 10)]


def test_after_each_transient_failure_is_cleaned_up() -> None:
    cleaned: list[int] = []
    attempted(failing(3), clean_up=lambda: cleaned.append(1))
    assert len(cleaned) == 3


def test_a_stop_ends_the_repetition_after_the_attempt() -> None:
    answers = iter([False, True])
    assert attempted(failing(9), stopping=lambda: next(answers)) == (FAILED, [pause(1)])


def test_the_first_attempt_is_made_even_when_stopping() -> None:
    assert attempted(failing(0), stopping=lambda: True) == ("done", [])


def test_a_budget_is_not_exceeded_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("streamling.retry.time.monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    result, _ = attempted(failing(99), budget_s=1.0, sleep=sleep)
    assert result is FAILED
    assert clock[0] == pytest.approx(pause(1) + pause(2) + pause(3))


def test_the_sixth_failure_is_louder_and_recovery_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    attempted(failing(6))
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 5 + ["ERROR", "INFO"]
    assert caplog.messages[-1] == "it recovered after 7 attempts"


def test_who_wants_to_know_hears_what_is_wrong_and_that_it_is_over() -> None:
    heard: list[str | None] = []
    attempted(failing(2), on_trouble=heard.append)
    assert heard == ["not now", "not now", None]


@pytest.mark.parametrize(("failures", "succeeds"), [(0, True), (2, True), (3, False)])
def test_a_lookup_is_retried_twice_with_the_time_that_is_left(failures: int, succeeds: bool) -> None:
    calls: list[float] = []

    def ask(left: float) -> str:
        calls.append(left)
        if len(calls) <= failures:
            raise FAILED
        return "answer"

    if succeeds:
        assert look_up(ask, "it", 10) == "answer"
    else:
        with pytest.raises(TransientError):
            look_up(ask, "it", 10)
    assert len(calls) == min(failures + 1, 3)
    assert calls == sorted(calls, reverse=True)


@pytest.mark.parametrize(("error", "seconds"), [(PermanentError(SINK_FAILED, "no"), 10.0), (FAILED, 0.1)])
def test_a_lookup_that_fails_permanently_or_has_no_time_left_is_not_retried(
    error: StreamlingError, seconds: float
) -> None:
    calls: list[float] = []

    def ask(left: float) -> str:
        calls.append(left)
        raise error

    with pytest.raises(type(error)):
        look_up(ask, "it", seconds)
    assert len(calls) == 1
