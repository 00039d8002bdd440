"""Retries: how long the pauses are, at which level they are logged, when to give up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from streamling.errors import Fenced, TransientError

log = logging.getLogger(__name__)
Result = TypeVar("Result")

_FIRST_S, _LONGEST_S = 0.1, 30.0
# The longest pause after an error whose cause was removed, such as a dead connection that was closed.
_REMEDIED_S = 5.0
# Later attempts are logged as errors.
_WARNINGS = 5
_LOOKUP_ATTEMPTS = 3


class Retry(Protocol):
    """`retry` with its options chosen: repeats an action while it fails transiently; `what` names it in the log."""

    def __call__(self, action: Callable[[], Result], what: str) -> Result: ...


def pause(attempt: int) -> float:
    """Seconds before attempt + 1: doubling from 100 ms, with a little jitter, never over 30 s."""
    return min(_FIRST_S * float(1 << min(attempt - 1, 20)) + (attempt % 100) * 0.007, _LONGEST_S)


def retry(
    action: Callable[[], Result],
    *,
    what: str,
    stopping: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], object] = time.sleep,
    budget_s: float | None = None,
    attempts: int | None = None,
    quiet: bool = False,
    clean_up: Callable[[], object] = lambda: None,
    on_trouble: Callable[[str | None], object] = lambda trouble: None,
) -> Result:
    """Repeat `action` while it fails transiently: until it succeeds, the run stops, or the budget is spent.

    budget_s, attempts   the maximum of seconds and calls; without them it is repeated forever
    clean_up             called after every failure
    on_trouble           called with the error message before every pause, and with None when all has ended
    quiet                log at DEBUG: the caller reports the last error itself

    `Fenced` is raised immediately: a retry cannot help a process that has lost its slices to another one.
    """
    attempt, began, is_troubled = 0, time.monotonic(), False
    try:
        while True:
            attempt += 1
            try:
                result = action()
            except Fenced:
                raise
            except TransientError as error:
                clean_up()
                wait = min(pause(attempt), _REMEDIED_S if error.remedied else _LONGEST_S)
                wait = max(wait, error.wait_s or 0.0)
                spent = time.monotonic() - began
                if stopping() or attempt == attempts or (budget_s is not None and spent + wait > budget_s):
                    raise
                is_troubled = True
                on_trouble(error.message)
                level = logging.DEBUG if quiet else logging.WARNING if attempt <= _WARNINGS else logging.ERROR
                log.log(level, "%s failed (attempt %d), trying again in %.1f s: %s", what, attempt, wait, error)
                sleep(wait)
                continue
            if attempt > 1:
                log.log(logging.DEBUG if quiet else logging.INFO, "%s recovered after %d attempts", what, attempt)
            return result
    finally:
        if is_troubled:
            on_trouble(None)


def look_up(ask: Callable[[float], Result], what: str, seconds: float) -> Result:
    """The result of `ask`, which is called with the seconds left. A transient failure is retried twice at most."""
    deadline = time.monotonic() + seconds
    return retry(
        lambda: ask(deadline - time.monotonic()),
        what=what,
        budget_s=seconds,
        attempts=_LOOKUP_ATTEMPTS,
        quiet=True,
    )
