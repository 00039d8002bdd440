"""A run of the command line, from start to exit code.

The main thread launches Java, then waits for signals. Another works: it prepares the pipeline while Java boots, then
opens everything and runs the epoch loop. So a stop can always be heard, and bounded in time.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from streamling.engine.execution import Execution, Summary
from streamling.engine.process.engine import Engine, start_engine
from streamling.engine.process.session import spark_conf
from streamling.engine.process.shutdown import Watchdog, drains, terminal_wait
from streamling.engine.process.signals import Signals, listen
from streamling.engine.protocol.progress import Progress
from streamling.errors import TransientError
from streamling.spec.settings import Settings

log = logging.getLogger(__name__)


class Run:
    """One run of one pipeline file in this process, which then ends."""

    def __init__(
        self, file: Path, settings: Settings, *, verbose: bool = False, progress: Progress | None = None
    ) -> None:
        self._settings = settings
        self._verbose = verbose
        self._progress = progress or Progress()
        self._execution = Execution(file, settings, self._progress)
        self._failure: BaseException | None = None

    def execute(self) -> Summary:
        """Run to the end. Returns normally after a natural end, a record limit or a signal; else raises."""
        signals = listen()
        settings = self._settings
        conf = spark_conf(settings.spark, application=settings.application_id)
        engine = start_engine(conf, verbose=self._verbose)
        done = threading.Event()
        worker = threading.Thread(target=self._work, args=(engine, done, signals), name="epochs", daemon=True)
        worker.start()
        while not done.is_set() and signals.received is None:
            signals.wait(None)
        if not done.is_set():
            self._shut_down(engine, done, signals)
        finished = done.is_set()
        self._progress.done()
        if finished:
            engine.close()
        else:
            engine.kill()
        if self._failure is not None and finished:
            if signals.received is None or not isinstance(self._failure, TransientError):
                raise self._failure
            log.warning("the last epoch did not complete, its rows will come again: %s", self._failure)
        # A worker that was cut off after a signal fails because we took the JVM away; that is not news.
        return self._execution.summary()

    def _work(self, engine: Engine, done: threading.Event, signals: Signals) -> None:
        budget = self._settings.runtime.shutdown_budget_secs
        try:
            # What follows a failure closes things, and could hang in one of them.
            self._execution.run(engine, failing=lambda error: Watchdog(budget, engine.kill, because=str(error)))
        except BaseException as error:  # handed to the main thread, which raises it
            self._failure = error
        finally:
            done.set()
            signals.wake()

    def _shut_down(self, engine: Engine, done: threading.Event, signals: Signals) -> None:
        """After a signal: what is in flight flows through, within the budget."""
        settings, execution = self._settings, self._execution
        budget = settings.runtime.shutdown_budget_secs
        Watchdog(budget, engine.kill)
        name, wait_s = signals.received.name if signals.received else "stop", terminal_wait(budget)
        log.info("%s received, stopping; the last epoch has up to %d s, Ctrl-C again ends at once", name, wait_s)
        self._progress.stopping()
        if execution.stop is None:
            return  # still starting: nothing is in flight
        policy = drains(
            settings.drain_policy, job_mode=settings.job_mode, bounded=execution.bounded, loose=execution.loose
        )
        execution.stop.request(drains=policy)
        deadline = time.monotonic() + wait_s
        while not done.is_set() and not signals.insisted and (left := deadline - time.monotonic()) > 0:
            signals.wait(left)
        if signals.insisted and not done.is_set():
            log.warning("interrupted again: ending at once; what is not finalized will come again after a restart")
        elif execution.delivered and not done.is_set():
            log.warning("all rows read are delivered, but some nodes did not close in time")
        elif not done.is_set():
            log.warning("the last epoch did not complete in time; its rows will come again after a restart")
