"""How long a stop may take, and what happens to rows in flight."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from streamling.engine.process.engine import ignore_errors
from streamling.spec.settings.blocks import DrainPolicy

log = logging.getLogger(__name__)


def terminal_wait(budget: int) -> int:
    """Seconds that the last epoch may take after a signal: enough of the budget must be left to close everything."""
    return max(min(budget - 10, budget // 2), min(5, budget - 2))


def drains(policy: DrainPolicy, *, job_mode: bool, bounded: bool, unreplayable: bool) -> bool:
    """Whether rows already read are still written and recorded after a signal.

    `unreplayable`: a source gives rows that it may not be able to give a second time.
    """
    if policy is DrainPolicy.FAST and bounded:
        log.warning("drain_policy fast is overridden: the pipeline has a bounded source")
    elif policy is DrainPolicy.FAST and unreplayable:
        log.warning(
            "drain_policy fast: rows that a plugin source has given are not written; "
            "only the plugin can give them again"
        )
    return policy is DrainPolicy.DRAIN or bounded or (policy is DrainPolicy.AUTO and (job_mode or unreplayable))


class Watchdog:
    """Kills the process if a stop takes longer than the budget."""

    def __init__(self, budget: float, before_exit: Callable[[], object], reason: str = "") -> None:
        self._budget = budget
        self._before_exit = before_exit
        self._reason = reason
        self._timer = threading.Timer(budget, self._exit)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """The stop is complete, and the process stays."""
        self._timer.cancel()

    def _exit(self) -> None:
        log.error("shutdown did not complete within %.0f s; ending the process. %s", self._budget, self._reason)
        try:
            self._before_exit()
        finally:
            os._exit(1)


class Closable(Protocol):
    def close(self) -> object: ...


def close_all(parts: Sequence[Closable]) -> None:
    """Close everything at the same time: some wait for plugin code that does not answer, each up to its own limit."""
    threads = [threading.Thread(target=ignore_errors, args=(part.close,), name="close", daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
