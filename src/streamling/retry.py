"""Trying again: which pauses, how loud, until when."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from streamling.errors import Fenced, TransientError

log = logging.getLogger(__name__)
Result = TypeVar("Result")

_FIRST_S, _LONGEST_S = 0.1, 30.0
_REMEDIED_S = 5.0
_QUIET_ATTEMPTS = 5


def pause(attempt: int) -> float:
    """Seconds before attempt + 1: doubling from 100 ms, spread a little, never over 30 s."""
    return min(_FIRST_S * float(1 << min(attempt - 1, 20)) + (attempt % 100) * 0.007, _LONGEST_S)


def retry(
    action: Callable[[], Result],
    *,
    what: str,
    stopping: Callable[[], bool],
    sleep: Callable[[float], object] = time.sleep,
    budget_s: float | None = None,
    clean_up: Callable[[], object] = lambda: None,
    tell: Callable[[str | None], object] = lambda trouble: None,
) -> Result:
    """Repeat `action` while it fails transiently: until it succeeds, the run stops, or the budget is spent.

    Fencing is passed on: repeating cannot help a stale owner. `tell` hears what is wrong, and None when it is over.
    """
    attempt, began = 0, time.monotonic()
    while True:
        attempt += 1
        try:
            result = action()
        except Fenced:
            raise
        except TransientError as error:
            clean_up()
            wait = min(pause(attempt), _REMEDIED_S if error.remedied else _LONGEST_S)
            spent = time.monotonic() - began
            if stopping() or (budget_s is not None and spent + wait > budget_s):
                raise
            tell(error.message)
            level = logging.WARNING if attempt <= _QUIET_ATTEMPTS else logging.ERROR
            log.log(level, "%s failed (attempt %d), trying again in %.1f s: %s", what, attempt, wait, error)
            sleep(wait)
            continue
        if attempt > 1:
            tell(None)
            log.info("%s recovered after %d attempts", what, attempt)
        return result
