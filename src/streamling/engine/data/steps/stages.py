"""What a worker runs: one stage after the other in one task; rows do not pass through Java in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from streamling.engine.data.spark_rows import spark_schema
from streamling.formats.arrow import arrow_schema
from streamling.formats.worker_types import to_worker, worker_schema
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_PACKED_SCHEMA = "batch BINARY"
# Java holds several copies of a value at a time.
_PACKED_BYTES = 2 << 20


class RowCounter:
    def __init__(self) -> None:
        self.rows = 0

    def count(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


class Stage(Protocol):
    """Picklable. Gets the rows of a partition, yields rows, and sends its report at the end."""

    def run(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class Stages:
    """A frame and the stages that its partitions go through."""

    start: DataFrame
    stages: tuple[Stage, ...]

    def then(self, stage: Stage) -> Stages:
        return replace(self, stages=(*self.stages, stage))

    def frame(self, session: SparkSession, schema: Schema) -> DataFrame:
        """The rows of the last stage."""
        task = StageTask(self.stages, schema)
        # Spark accepts only a plain function.
        return self.start.mapInArrow(lambda batches: task(batches), spark_schema(schema))

    def run(self, schema: StructType | str) -> DataFrame:
        """For a last stage whose batches are not rows of a node."""
        task = StageTask(self.stages, None)
        return self.start.mapInArrow(lambda batches: task(batches), schema)

    def packed(self, schema: Schema) -> DataFrame:
        """The rows of the last stage for `unpack`."""
        return self.then(PackStage(schema)).run(_PACKED_SCHEMA)


@dataclass(frozen=True, slots=True)
class StageTask:
    stages: tuple[Stage, ...]
    schema: Schema | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from streamling.engine.data.spark_errors import errors_to_driver

        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        with errors_to_driver():
            for stage in self.stages:
                batches = stage.run(batches, partition, attempt)
            if self.schema is None:
                yield from batches
                return
            schema = worker_schema(arrow_schema(self.schema))
            for batch in batches:
                yield to_worker(batch, schema)


@dataclass(frozen=True, slots=True)
class PackStage:
    """Turns every batch into one binary value, an Arrow message: Java copies it instead of converting its rows."""

    schema: Schema

    def run(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(self.schema)
        for batch in batches:
            rows = max(1, batch.num_rows * _PACKED_BYTES // max(batch.nbytes, 1))
            for start in range(0, batch.num_rows, rows):
                message = to_worker(batch.slice(start, rows), schema).serialize()
                offsets = pa.array([0, message.size], pa.int32()).buffers()[1]
                value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, message])
                yield pa.RecordBatch.from_arrays([value], names=["batch"])


def unpack(packed: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """The batches that a `PackStage` has turned into values."""
    import pyarrow as pa

    arrow = arrow_schema(schema)
    for values in packed:
        for value in values.column(0):
            yield pa.ipc.read_record_batch(value.as_buffer(), arrow)
