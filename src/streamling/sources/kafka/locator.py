"""The offsets of rows: the messages are read and decoded again, with the columns that have them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamling.connector import BadRow, Counted, Json, Reached, Timed
from streamling.plan.types import INT32, INT64, Field, Schema
from streamling.sources.kafka.reader import KafkaReader

if TYPE_CHECKING:
    import pyarrow as pa

Rejects = dict[int, BadRow]
METADATA_NAMES = ("__kafka_partition", "__kafka_offset", "__kafka_timestamp")


@dataclass(frozen=True, slots=True)
class KafkaLocator:
    reader: KafkaReader

    def places(self, part: Json) -> Iterator[Mapping[str, Json]]:
        partition_name, offset_name, _ = METADATA_NAMES
        reader = self._reader_of_offsets
        for item in reader.read(part):
            if not isinstance(item, BadRow | Counted | Timed | Reached):
                partitions, offsets = (item.column(name).to_pylist() for name in (partition_name, offset_name))
                for partition, offset in zip(partitions, offsets, strict=True):
                    yield {"topic": reader.topic, "partition": partition, "offset": offset}

    def rejects(self, parts: Sequence[Json], numbers: Sequence[int]) -> Mapping[int, BadRow]:
        rejects: Rejects = {}
        first = 0
        for messages, batch in (found for part in parts for found in self._batches(part)):
            here = numbers[len(rejects) : bisect_left(numbers, first + batch.num_rows)]
            if here:
                rejects |= self._rejects(messages, batch, first, here)
            if len(rejects) == len(numbers):
                break
            first += batch.num_rows
        return rejects

    def _rejects(self, messages: Sequence[Any], batch: pa.RecordBatch, first: int, numbers: Sequence[int]) -> Rejects:
        by_offset = {message.offset(): message for message in messages}
        offsets = batch.column(METADATA_NAMES[1])
        rows = self.reader.message_rows(self.reader.payload)
        return {number: rows.bad_row("", "", by_offset[offsets[number - first].as_py()]) for number in numbers}

    def _batches(self, part: Json) -> Iterator[tuple[list[Any], pa.RecordBatch]]:
        """Messages and rows of them."""
        for messages, items, _ in self._reader_of_offsets.decoded(part):
            for item in items:
                if not isinstance(item, BadRow | Counted):
                    yield messages, item

    @property
    def _reader_of_offsets(self) -> KafkaReader:
        partition_name, offset_name, _ = METADATA_NAMES
        columns = self.reader.columns
        missing = [f for f in (Field(partition_name, INT32), Field(offset_name, INT64)) if f.name not in columns]
        return replace(self.reader, columns=Schema((*columns, *missing)), metadata=True, measures=False)
