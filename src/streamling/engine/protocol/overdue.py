"""Epochs that are open for too long are reported, whichever step takes the time; their work goes on."""

from __future__ import annotations

import logging
import threading
import time

from streamling.engine.protocol.epoch_metrics import EpochMetrics
from streamling.log_context import log_fields

log = logging.getLogger(__name__)

# After this an open epoch counts as failed.
_OVERDUE_S = 300.0
# Short compared with that limit.
_CHECK_S = 5.0


class OverdueWatch:
    """A thread that looks at the open epoch every few seconds. A context manager."""

    def __init__(self, metrics: EpochMetrics, overdue_s: float = _OVERDUE_S, check_s: float = _CHECK_S) -> None:
        self._metrics = metrics
        self._overdue_s = overdue_s
        self._check_s = check_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="overdue epochs", daemon=True)

    def __enter__(self) -> OverdueWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        reported: int | None = None
        while not self._over.wait(self._check_s):
            epoch = self._metrics.open_epoch
            if epoch is None or epoch.number == reported or time.monotonic() - epoch.since < self._overdue_s:
                continue
            reported = epoch.number
            self._metrics.overdue()
            with log_fields(epoch=epoch.number):
                log.warning("epoch %d has been open for more than %.0f s", epoch.number, self._overdue_s)
