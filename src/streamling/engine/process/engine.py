"""Java and its Spark session: shared by the pipelines that run one after the other in a process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamling.engine.data.spark_errors import spark_errors
from streamling.engine.process.launch import launch, stop_timeout
from streamling.engine.process.session import open_session
from streamling.errors import JVM_FAILED, SPARK_FAILED, StreamlingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Engine:
    """Starts Java immediately, and the session when a pipeline first needs it."""

    def __init__(self, conf: Mapping[str, str], *, verbose: bool = False) -> None:
        self._jvm = launch(conf, verbose=verbose)
        self._session: SparkSession | None = None
        self._opening = threading.Lock()

    def session(self, conf: Mapping[str, str], *, meanwhile: Callable[[], object]) -> SparkSession:
        """The session; waits for Java. The settings of the first call apply to all pipelines.

        If the session must be opened, a thread calls `meanwhile` while Java is busy with it.
        """
        with self._opening:
            if self._session is None:
                with spark_errors(None):
                    self._session = open_session(self._jvm, conf, meanwhile=meanwhile)
            return self._session

    def cause(self, error: BaseException) -> BaseException:
        """The error to report: if Java has ended, that is the cause, whatever the symptom was."""
        # A JVM that dies while it answers leaves half an answer, which looks like an error from Spark.
        symptom = not isinstance(error, StreamlingError) or error.condition in (JVM_FAILED, SPARK_FAILED)
        if symptom and isinstance(error, Exception) and self._jvm.ended():
            failure = self._jvm.failure("the Java virtual machine ended")
            failure.__cause__ = error
            return failure
        return error

    def kill(self) -> None:
        self._jvm.kill()

    def close(self) -> None:
        """Let Java end in order, so that it removes its files; kill it if it is still starting."""
        if self._session is None:
            self._jvm.kill()
            return
        ignore_errors(self._session.sparkContext._gateway.close)
        self._jvm.stop(stop_timeout())
        _reset_pyspark()
        self._session = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_engine(conf: Mapping[str, str], *, verbose: bool) -> Engine:
    """The engine of a run of the command line."""
    return Engine(conf, verbose=verbose)


def _reset_pyspark() -> None:
    """pyspark keeps its session for the life of the process; another engine needs a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def ignore_errors(action: Callable[[], object]) -> None:
    """Run an action of the shutdown: its failure changes nothing any more."""
    try:
        action()
    except Exception as error:
        log.debug("error during shutdown: %s", error)
