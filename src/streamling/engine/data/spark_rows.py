"""Rows on their way into Spark and out of it, as Arrow."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """Spark refuses to hand over a result: it is more bytes than `spark.driver.maxResultSize`."""


@cache
def spark_schema(schema: Schema) -> StructType:
    """Explicit, because Spark would guess: an Arrow timestamp without zone becomes an instant otherwise.

    Made once per schema, not per epoch: Spark's own parser reads it.
    """
    from pyspark.sql.types import StructType

    return StructType.fromDDL(", ".join(f"{identifier(f.name)} {spark_type(f.type)}" for f in schema))


def make_table(schema: Schema, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    import pyarrow as pa

    if not batches:  # a chunk of no rows: Spark cannot take a nested column that has no chunk at all
        return arrow_schema(schema).empty_table()
    return pa.Table.from_batches(list(batches), arrow_schema(schema))


def make_frame(session: SparkSession, schema: Schema, table: pa.Table, chunk_rows: int = 0) -> DataFrame:
    """The table as a frame; one partition per `chunk_rows` rows if it is more than a megabyte, in order."""
    if chunk_rows and table.num_rows > chunk_rows:
        table = _cut(table, chunk_rows)
    elif table.column(0).num_chunks > 1:
        table = table.combine_chunks()  # else every batch that was read would be a partition
    return session.createDataFrame(table, spark_schema(schema))


def _cut(table: pa.Table, rows: int) -> pa.Table:
    import pyarrow as pa

    chunks = [table.slice(start, rows).combine_chunks() for start in range(0, table.num_rows, rows)]
    return pa.concat_tables(chunks)


def collect(frame: DataFrame) -> pa.Table:
    """All rows of a frame at once. Raises ResultTooLarge."""
    with _refusals():
        return frame.toArrow()


def stream(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a frame in order, a few partitions at a time: Java never holds more than two windows of them.

    While one window is used the next is computed. Raises ResultTooLarge if one of them is.
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


class _Partitions:
    """The partitions of a frame, as Arrow batches."""

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._context: Any = frame.sparkSession.sparkContext
        self._rdd = frame._jdf.toArrowBatchRdd().toJavaRDD()
        self._schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
        self.count: int = self._rdd.getNumPartitions()

    def collect(self, numbers: Sequence[int]) -> list[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.serializers import NoOpSerializer
        from pyspark.util import _load_from_socket

        context = self._context
        # This is no SQL execution, so tasks see the settings of the session only as properties of the thread.
        for name, value in SESSION_SETTINGS.items():
            context.setLocalProperty(name, value)
        wanted = context._jvm.java.util.ArrayList()
        for number in numbers:
            wanted.add(number)
        with _refusals():
            served = context._jvm.PythonRDD.runJob(context._jsc.sc(), self._rdd, wanted)
            with _load_from_socket(served, NoOpSerializer()) as messages:
                return [pa.ipc.read_record_batch(pa.py_buffer(message), self._schema) for message in messages]


class _refusals:  # used as `with _refusals():`
    """Turns Spark's refusal of a large result into ResultTooLarge; every other error passes."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        if isinstance(error, Py4JJavaError | PySparkException):
            failure = spark_failure(error)
            if failure is not None and failure.result_too_large:
                raise ResultTooLarge from None
