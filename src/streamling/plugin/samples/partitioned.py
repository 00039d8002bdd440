"""`basic_plugin.partitioned_*`: plugins with several instances, which show how rows are distributed.

Delivery: at least once. Each instance of the source keeps the count of its rows in `state`; the sink appends, and makes
its files durable at every marker.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from streamling.plugin import (
    ByPrimaryKey,
    Description,
    PluginContext,
    PluginError,
    RoundRobin,
    SinkPlugin,
    SourcePlugin,
    TransformPlugin,
    register_sink,
    register_source,
    register_transform,
)

if TYPE_CHECKING:
    import pyarrow as pa

_RANGE = 1_000_000
_BATCH = 1000


def _count(options: dict[str, str], name: str, default: str | None, least: int) -> int:
    text = options.get(name, default)
    if text is None:
        raise PluginError(f"the option '{name}' is missing", user=True)
    if not text.isdecimal() or int(text) < least:
        raise PluginError(f"'{name}' must be a whole number of at least {least}, not '{text}'", user=True)
    return int(text)


@register_source("basic_plugin", "partitioned_source", partitioned=True)
class PartitionedSource(SourcePlugin):
    """Numbered rows: `rows` in each partition; `preferred_partitions` partitions unless `parallelism` is set."""

    sample_options: ClassVar[Mapping[str, str]] = {"rows": "100"}

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self._rows = _count(options, "rows", None, 0)
        self._next = 0
        self._marked: dict[int, int] = {}

    @classmethod
    def describe(cls, options: dict[str, str], input_schema: pa.Schema | None) -> Description:
        _count(options, "rows", None, 0)
        preferred = _count(options, "preferred_partitions", "1", 1)
        return Description(_numbered_schema(), preferred=preferred, bounded=True)

    def output_schema(self) -> pa.Schema:
        return _numbered_schema()

    async def initialize(self) -> None:
        stored = self.context.state.get()
        self._next = stored if isinstance(stored, int) else 0

    def is_running(self) -> bool:
        return not self._terminated and self._next < self._rows

    async def generate_batch(self) -> pa.RecordBatch:
        import pyarrow as pa

        first, end = self._next, min(self._next + _BATCH, self._rows)
        self._next = end
        partition = self.context.partition_index
        ids = pa.array(range(partition * _RANGE + first, partition * _RANGE + end), pa.int64())
        partitions = pa.repeat(pa.scalar(partition, pa.int32()), end - first)
        operations = pa.repeat(pa.scalar("i"), end - first)
        return pa.RecordBatch.from_arrays([ids, partitions, operations], schema=_numbered_schema())

    async def process_checkpoint_marker(self, epoch: int) -> None:
        self._marked[epoch] = self._next

    async def process_checkpoint_finalizer(self, epoch: int) -> None:
        done = [marked for marked in self._marked if marked <= epoch]
        if done:
            self.context.state.put(self._marked[max(done)])
        for marked in done:
            del self._marked[marked]


@register_transform("basic_plugin", "partitioned_transform", partitioned=True)
class PartitionedTransform(TransformPlugin):
    """Adds `transform_partition`, the number of the instance that processed the row."""

    @classmethod
    def describe(cls, options: dict[str, str], input_schema: pa.Schema) -> Description:
        return Description(_with_partition(input_schema), placement=RoundRobin())

    def output_schema(self) -> pa.Schema:
        return _with_partition(self.context.input_schema)

    async def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        partition = pa.repeat(pa.scalar(self.context.partition_index, pa.int32()), batch.num_rows)
        position = batch.schema.get_field_index("_gs_op")
        columns = [*batch.columns[:position], partition, *batch.columns[position:]]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema())


@register_sink("basic_plugin", "partitioned_file_sink", partitioned=True)
class PartitionedFileSink(SinkPlugin):
    """Writes `<node>-<partition>.csv` files to `output_dir`; rows of one key always go to the same file."""

    sample_options: ClassVar[Mapping[str, str]] = {"output_dir": "out"}

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self._path = Path(options["output_dir"]) / f"{context.reference_name}-{context.partition_index}.csv"
        self._file: IO[bytes] | None = None

    @classmethod
    def describe(cls, options: dict[str, str], input_schema: pa.Schema) -> Description:
        if "output_dir" not in options:
            raise PluginError("the option 'output_dir' is missing", user=True)
        return Description(placement=ByPrimaryKey())

    def initialize(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab")
        if self._file.tell() == 0 and self.context.input_schema is not None:
            self._file.write((",".join(f'"{name}"' for name in self.context.input_schema.names) + "\n").encode())

    def process_batch(self, batch: pa.RecordBatch) -> None:
        import pyarrow.csv

        lines = io.BytesIO()
        pyarrow.csv.write_csv(batch, lines, pyarrow.csv.WriteOptions(include_header=False))
        if self._file is not None:
            self._file.write(lines.getvalue())

    def process_checkpoint_marker(self, epoch: int) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def terminate(self) -> None:
        if self._file is not None:
            self._file.close()


def _numbered_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("source_partition", pa.int32(), nullable=False),
            pa.field("_gs_op", pa.string(), nullable=False),
        ]
    )


def _with_partition(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return schema.insert(schema.get_field_index("_gs_op"), pa.field("transform_partition", pa.int32(), nullable=False))
