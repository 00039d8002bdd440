"""The Python workers of a session: they read large epochs and compute functions of plugins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from streamling.engine.process.cores import cores

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class PythonWorkers:
    """Starts workers before the first task needs them; Spark starts those that are missing later."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def start_in_background(self, done: Callable[[Exception | None], None] = lambda error: None) -> None:
        """Start them in a thread, which calls `done` with the error, or with None if they run."""
        threading.Thread(target=self._start_and_report, args=(done,), name="warm workers", daemon=True).start()

    def _start_and_report(self, done: Callable[[Exception | None], None]) -> None:
        try:
            self.start()
        except Exception as error:
            done(error)
        else:
            done(None)

    def start(self) -> None:
        """Start the worker daemon and fork a worker per core. The other slots are left to small epochs."""

        def touch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches

        count = cores(self._session)
        self._session.range(0, count, 1, count).mapInArrow(touch, "id BIGINT").toArrow()
