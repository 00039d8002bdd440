"""How long a stop may take, and what becomes of rows in flight."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from streamling.spec.settings.blocks import DrainPolicy

log = logging.getLogger(__name__)


def terminal_wait(budget: int) -> int:
    """Longest wait for the last epoch after a signal, in seconds: it must leave time to close everything."""
    return max(min(budget - 10, budget // 2), min(5, budget - 2))


def drains(policy: DrainPolicy, *, job_mode: bool, bounded: bool, loose: bool) -> bool:
    """Whether rows already read are still written and recorded after a signal.

    `loose`: a source gives rows that it may not be able to give a second time.
    """
    if policy is DrainPolicy.FAST and bounded:
        log.warning("drain_policy fast is overridden: the pipeline has bounded work")
    elif policy is DrainPolicy.FAST and loose:
        log.warning("drain_policy fast leaves rows of a plugin source unwritten: whether they come again is up to it")
    return policy is DrainPolicy.DRAIN or bounded or (policy is DrainPolicy.AUTO and (job_mode or loose))


class Watchdog:
    """Ends the process hard when a stop takes longer than the budget."""

    def __init__(self, budget: float, before_exit: Callable[[], object], because: str = "") -> None:
        self._timer = threading.Timer(budget, self._bite)
        self._timer.daemon = True
        self._before_exit = before_exit
        self._budget, self._because = budget, because
        self._timer.start()

    def _bite(self) -> None:
        log.error("shutdown did not complete within %.0f s; ending the process. %s", self._budget, self._because)
        try:
            self._before_exit()
        finally:
            os._exit(1)
