"""Transfer of rows into Spark and out of it, as Arrow."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from streamling.engine.data.spark_errors import spark_failure
from streamling.engine.process.cores import cores
from streamling.formats.arrow import arrow_schema
from streamling.plan.spark_settings import SESSION_SETTINGS
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.sql.values import identifier
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class ResultTooLarge(Exception):
    """Spark does not return a result, because it has more bytes than `spark.driver.maxResultSize`."""


@cache
def spark_schema(schema: Schema) -> StructType:
    """The schema in Spark's types. Without it Spark would guess: an Arrow timestamp without zone becomes an instant.

    Made once per schema, not per epoch, because Spark's parser has to read it.
    """
    from pyspark.sql.types import StructType

    return StructType.fromDDL(", ".join(f"{identifier(f.name)} {spark_type(f.type)}" for f in schema))


def make_table(schema: Schema, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    import pyarrow as pa

    if not batches:  # one chunk without rows: Spark does not accept a nested column without any chunk
        return arrow_schema(schema).empty_table()
    return pa.Table.from_batches(list(batches), arrow_schema(schema))


def make_frame(session: SparkSession, schema: Schema, table: pa.Table, chunk_rows: int = 0) -> DataFrame:
    """The table as a frame; one partition per `chunk_rows` rows if it has more than a megabyte, in order."""
    if chunk_rows and table.num_rows > chunk_rows:
        table = _cut(table, chunk_rows)
    elif table.column(0).num_chunks > 1:
        table = table.combine_chunks()  # otherwise every batch would become a partition
    return session.createDataFrame(table, spark_schema(schema))


def _cut(table: pa.Table, rows: int) -> pa.Table:
    import pyarrow as pa

    chunks = [table.slice(start, rows).combine_chunks() for start in range(0, table.num_rows, rows)]
    return pa.concat_tables(chunks)


def collect(frame: DataFrame) -> pa.Table:
    """All rows of a frame at once. Raises ResultTooLarge."""
    with _large_result_errors():
        return frame.toArrow()


def stream(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a frame in order, a window of partitions at a time: Java never holds more than two windows.

    While one window is used, the next is computed. Raises ResultTooLarge if a window is too large.
    """
    session = frame.sparkSession
    partitions = _Partitions(frame)
    width = max(1, cores(session))
    if partitions.count <= width:
        yield from collect(frame).to_batches()
        return
    windows = [range(first, min(first + width, partitions.count)) for first in range(0, partitions.count, width)]
    from pyspark.util import inheritable_thread_target

    with ThreadPoolExecutor(1, thread_name_prefix=f"{threading.current_thread().name} ahead") as pool:
        fetch = inheritable_thread_target(session)(partitions.collect)
        ahead = pool.submit(fetch, windows[0])
        for following in [*windows[1:], None]:
            batches = ahead.result()
            if following is not None:
                ahead = pool.submit(fetch, following)
            yield from batches


def count_rows(frame: DataFrame) -> int:
    """Compute all columns of a frame, drop them, and return the number of rows."""
    _set_session_properties(frame.sparkSession.sparkContext)
    execution = frame._jdf.queryExecution()
    execution.executedPlan().resetMetrics()
    return int(execution.toRdd().count())


def count_small(frame: DataFrame) -> int:
    """The number of rows of a frame over rows of the driver. Spark computes most of them while it optimizes the query:
    then no job is needed."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    if plan.getClass().getSimpleName() == "LocalRelation":
        return int(plan.data().size())
    return int(frame.count())


def _set_session_properties(context: Any) -> None:
    """For jobs that are not SQL executions: their tasks see the settings of the session only as properties of the
    thread."""
    for name, value in SESSION_SETTINGS.items():
        context.setLocalProperty(name, value)


class _Partitions:
    """The partitions of a frame, as Arrow batches."""

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._context: Any = frame.sparkSession.sparkContext
        frame._jdf.queryExecution().executedPlan().resetMetrics()  # it may be computed again after a failure
        self._rdd = frame._jdf.toArrowBatchRdd().toJavaRDD()
        self._schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
        self.count: int = self._rdd.getNumPartitions()

    def collect(self, numbers: Sequence[int]) -> list[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.serializers import NoOpSerializer
        from pyspark.util import _load_from_socket

        context = self._context
        _set_session_properties(context)
        partitions = context._jvm.java.util.ArrayList()
        for number in numbers:
            partitions.add(number)
        with _large_result_errors():
            socket = context._jvm.PythonRDD.runJob(context._jsc.sc(), self._rdd, partitions)
            with _load_from_socket(socket, NoOpSerializer()) as messages:
                return [pa.ipc.read_record_batch(pa.py_buffer(message), self._schema) for message in messages]


@contextmanager
def _large_result_errors() -> Iterator[None]:
    """Turn Spark's error about a large result into ResultTooLarge; every other error is passed on."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        failure = spark_failure(error)
        if failure is not None and failure.result_too_large:
            raise ResultTooLarge from None
        raise
