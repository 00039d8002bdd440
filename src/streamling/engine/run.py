"""A run of the command line, from start to exit code.

The main thread launches Java, then waits for signals. A second thread prepares the pipeline while Java boots, then
opens everything and runs the epoch loop. So the main thread can always react to a signal and limit the time of a stop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from streamling.engine.execution import Summary
from streamling.engine.process.engine import Engine, start_engine
from streamling.engine.process.session import spark_conf
from streamling.engine.process.shutdown import Watchdog, drains, terminal_wait
from streamling.engine.process.signals import Signals, listen
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.health import Health, ProgressWatch
from streamling.engine.protocol.progress import Progress
from streamling.errors import TransientError
from streamling.spec.settings import Settings

log = logging.getLogger(__name__)


class Executable(Protocol):
    """What a run executes: a pipeline, or several replays of dead letters. The attributes are those of Execution."""

    @property
    def stop(self) -> StopRequest | None: ...

    @property
    def bounded(self) -> bool: ...

    @property
    def unreplayable(self) -> bool: ...

    @property
    def delivered(self) -> bool: ...

    def run(self, engine: Engine, *, on_failure: Callable[[BaseException], object]) -> Summary: ...

    def summary(self) -> Summary: ...

    def abandon(self) -> None: ...


class Run:
    """One run in this process, which then ends."""

    def __init__(
        self,
        execution: Executable,
        settings: Settings,
        *,
        verbose: bool = False,
        progress: Progress | None = None,
        health: Health | None = None,
    ) -> None:
        """`health` judges `progress`."""
        self._settings = settings
        self._verbose = verbose
        self._progress = progress or Progress()
        self._execution = execution
        self._health = health or Health(self._progress, settings.progress_deadline_secs)
        self._failure: BaseException | None = None
        self._stuck: TransientError | None = None
        self._watchdog: Watchdog | None = None
        """Limits the time in which a run that has failed may end."""
        self._stays = False
        self._ending = threading.Lock()

    def execute(self) -> Summary:
        """Run to the end. Returns normally after the end of input, a record limit or a signal; raises otherwise."""
        signals = listen()
        settings = self._settings
        conf = spark_conf(settings.spark, application=settings.application_id)
        engine = start_engine(conf, verbose=self._verbose)
        done = threading.Event()
        worker = threading.Thread(target=self._work, args=(engine, done, signals), name="epochs", daemon=True)
        worker.start()
        with ProgressWatch(self._health, settings, partial(self._give_up, signals)):
            while not done.is_set() and signals.received is None and self._stuck is None:
                signals.wait(None)
        if self._stuck is not None and not done.is_set():
            engine.kill()
            self._execution.abandon()
            raise self._stuck
        if not done.is_set():
            self._shut_down(engine, done, signals)
        finished = done.is_set()
        self._progress.set_done()
        if finished:
            engine.close()
        else:
            engine.kill()
            self._execution.abandon()
        if self._failure is not None and finished:
            if signals.received is None or not isinstance(self._failure, TransientError):
                raise self._failure
            log.warning("the last epoch did not complete; its rows will be read again: %s", self._failure)
        # An epochs thread that is abandoned after a signal fails because its JVM was killed: no reason to report that.
        return self._execution.summary()

    def keep_process(self) -> None:
        """The run has ended, or was given up and may fail later; the process stays for other reasons."""
        with self._ending:
            self._stays = True
            if self._watchdog is not None:
                self._watchdog.cancel()

    def _give_up(self, signals: Signals, error: TransientError) -> None:
        """Called by the watch: nothing waits for the thread that is stuck, and the process ends."""
        self._progress.set_failure(error)
        self._stuck = error
        signals.wake()

    def _work(self, engine: Engine, done: threading.Event, signals: Signals) -> None:
        def watch_end(error: BaseException) -> None:
            """After a failure the nodes are closed, and one of them could hang."""
            with self._ending:
                if not self._stays:
                    budget = self._settings.runtime.shutdown_budget_secs
                    self._watchdog = Watchdog(budget, engine.kill, reason=str(error))

        try:
            self._execution.run(engine, on_failure=watch_end)
        except BaseException as error:  # handed to the main thread, which raises it
            self._failure = error
        finally:
            done.set()
            signals.wake()

    def _shut_down(self, engine: Engine, done: threading.Event, signals: Signals) -> None:
        """After a signal: let the rows in flight reach the sinks, within the budget."""
        settings, execution = self._settings, self._execution
        budget = settings.runtime.shutdown_budget_secs
        Watchdog(budget, engine.kill)
        name, wait_s = signals.received.name if signals.received else "stop", terminal_wait(budget)
        log.info("%s received, stopping; the last epoch has up to %d s, Ctrl-C again ends at once", name, wait_s)
        self._progress.set_stopping()
        if execution.stop is None:
            return  # still starting: nothing is in flight
        policy = drains(
            settings.drain_policy,
            job_mode=settings.job_mode,
            bounded=execution.bounded,
            unreplayable=execution.unreplayable,
        )
        execution.stop.request(drains=policy)
        deadline = time.monotonic() + wait_s
        while not done.is_set() and not signals.interrupted_again and (left := deadline - time.monotonic()) > 0:
            signals.wait(left)
        if signals.interrupted_again and not done.is_set():
            log.warning("interrupted again: ending at once; rows not finalized will be read again after a restart")
        elif execution.delivered and not done.is_set():
            log.warning("all rows were delivered, but some nodes did not close in time")
        elif not done.is_set():
            log.warning("the last epoch did not complete in time; its rows will be read again after a restart")
