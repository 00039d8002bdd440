"""The offsets of rows: the messages are read and decoded again, with the columns that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from streamling.connector import BadRow, Counted, Json, Reached
from streamling.plan.types import INT32, INT64, Field, Schema
from streamling.sources.kafka.reader import KafkaReader

METADATA_NAMES = ("__kafka_partition", "__kafka_offset", "__kafka_timestamp")


@dataclass(frozen=True, slots=True)
class KafkaLocator:
    reader: KafkaReader

    def places(self, part: Json) -> Iterator[Mapping[str, Json]]:
        partition_name, offset_name, _ = METADATA_NAMES
        columns = self.reader.columns
        missing = [f for f in (Field(partition_name, INT32), Field(offset_name, INT64)) if f.name not in columns]
        reader = replace(self.reader, columns=Schema((*columns, *missing)), metadata=True)
        for item in reader.read(part):
            if not isinstance(item, BadRow | Counted | Reached):
                partitions, offsets = (item.column(name).to_pylist() for name in (partition_name, offset_name))
                for partition, offset in zip(partitions, offsets, strict=True):
                    yield {"topic": reader.topic, "partition": partition, "offset": offset}
