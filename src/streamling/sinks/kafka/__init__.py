"""`kafka`: rows as messages of a topic, Avro or JSON.

Delivery: exactly once, for consumers that read committed messages only. An epoch is one transaction, which also stores
the sink's positions, as offset metadata of the consumer group `<application>-<sink>-ledger`: an epoch that is recorded
there is not written again, and a process that was taken over is fenced by the broker. With `exactly_once: false`, or
if the broker refuses transactions, rows are delivered at least once; a log line at the start says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from pydantic import Field

from streamling.clients.kafka_producer import ProducerOptions
from streamling.connector import Kind, register
from streamling.errors import INVALID_VALUE, MESSAGE_KEY
from streamling.formats.avro_derivation import same_field
from streamling.plan.contract import Finding, Key
from streamling.plan.types import DataType, Schema
from streamling.sinks.kafka.sink import KafkaSink, MessageOptions
from streamling.spec.coercion import Choice
from streamling.spec.duration import Duration, parse_duration
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Deduplicating, SingleStream, SinkOptions, TopicName
from streamling.spec.settings import Settings

_NOT_IN_AVRO = frozenset({"null", "time32", "time64", "duration", "interval"})


class MessageFormat(StrEnum):
    AVRO = "avro"
    JSON = "json"


class MessageCompression(Choice):
    NONE = "none"
    GZIP = "gzip"
    LZ4 = "lz4"


class SchemaEvolution(StrEnum):
    NONE = "none"
    ADDITIVE = "additive"


class KafkaSinkOptions(Deduplicating, SingleStream, SinkOptions):
    """Every row becomes a message with its key and, in the header `dbz.op`, what happened to it; deletes are full
    rows too."""

    identity_labels = ("topic",)
    keeps_rows_by_key = True
    key_required = MESSAGE_KEY

    topic: TopicName = Field(description="Topic, created if missing.")
    data_format: MessageFormat = Field(description="Format of the payload.")
    topic_partitions: int | None = Field(
        default=None, ge=1, description="Partitions of a topic that is created; by default the setting of the broker."
    )
    batch_size: int = Field(default=10_000, ge=1, description="Messages the producer sends together.")
    batch_flush_interval: Duration = Field(
        default=parse_duration("200ms"), description="Longest wait of the producer for more messages."
    )
    message_max_bytes: int = Field(default=10_485_760, ge=1, description="Largest message.")
    compression: MessageCompression = Field(
        default=MessageCompression.LZ4, description="How messages are compressed; case does not matter."
    )
    exactly_once: bool = Field(
        default=True, description="Write each epoch in a transaction; `false`: rows are delivered at least once."
    )
    schema_evolution: SchemaEvolution = Field(
        default=SchemaEvolution.NONE,
        description="`additive`: columns that the Avro schema of the topic does not have are added to it at the start.",
    )

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        if self.data_format is not MessageFormat.AVRO:
            return
        for column in columns:
            for path, type_ in types_without_avro(column.name, column.type):
                message = f"no Avro encoding for the column '{path}' of the type {type_}"
                yield node.error(INVALID_VALUE, message, "data_format", hint="cast it, leave it out, or write JSON")
        for one, other, name in same_field(columns.fields):
            message = f"the columns '{one}' and '{other}' both become the Avro field '{name}'"
            yield node.error(INVALID_VALUE, message, "data_format", hint="rename one of them in a sql transform")


def types_without_avro(path: str, type_: DataType) -> Iterator[tuple[str, DataType]]:
    """The types in a column that Avro does not have, each with its path: `col.child`, `col[]`, `col{}`."""
    match type_:
        case DataType(kind="list", item=DataType() as item):
            yield from types_without_avro(f"{path}[]", item)
        case DataType(kind="struct", fields=fields):
            for field in fields:
                yield from types_without_avro(f"{path}.{field.name}", field.type)
        case DataType(kind="map", key=DataType(kind="string"), item=DataType() as item):
            yield from types_without_avro(f"{path}{{}}", item)
        case DataType(kind=kind) if kind in _NOT_IN_AVRO or kind == "map":
            yield path, type_


def _build(node: NodeSpec, settings: Settings) -> KafkaSink:
    options = node.options
    if not isinstance(options, KafkaSinkOptions):
        raise TypeError(options)
    producer = ProducerOptions(
        batch_messages=options.batch_size,
        linger_ms=round(options.batch_flush_interval.total_seconds() * 1000),
        message_bytes=options.message_max_bytes,
        compression=options.compression.value,
    )
    message_options = MessageOptions(
        topic=options.topic,
        avro=options.data_format is MessageFormat.AVRO,
        evolves=options.schema_evolution is SchemaEvolution.ADDITIVE,
        partitions=options.topic_partitions,
        exactly_once=options.exactly_once,
        batch_rows=settings.record_batch_size if options.deduplicate else None,
        producer=producer,
    )
    return KafkaSink(node, settings.kafka_sink, message_options)


register(Kind(Role.SINK, "kafka", KafkaSinkOptions, _build))
