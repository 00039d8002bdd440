"""`kafka`: the messages of a topic, Avro or JSON.

Delivery: a slice is a stretch of offsets of one partition. Reading it again gives the same rows, or fewer where the
broker has expired or compacted some; aborted transactions are never read. The offset to go on with is stored per
partition with every epoch, and wins over what the broker knows of the group, which is told after it.

Processes with one `consumer_group_id` and one state divide the partitions among themselves. A partition changes hands
between two epochs; an owner that does not know of it yet is fenced, and moves nothing. Without a group id a process
reads all partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from streamling.connector import BatchPolicy, Discovery, Kind, batch_policy, register
from streamling.errors import (
    INVALID_VALUE,
    MISSING_FIELD,
    SCHEMA_OUTDATED,
    SOURCE_FILTER,
    SQL_TYPES,
    SQL_UNKNOWN_COLUMN,
    InvalidPipeline,
    StreamlingError,
    TransientError,
    UserError,
)
from streamling.plan.contract import Finding, Key
from streamling.plan.sql import Expression, check_expression, compile_expression
from streamling.plan.types import BOOLEAN, INT32, INT64, NULL, OPERATION_COLUMN, OPERATION_FIELD, DataType, Schema
from streamling.plan.types import Field as Column
from streamling.plan.written_columns import DeclaredColumns, declared_fields
from streamling.sources.kafka.avro_columns import avro_columns, newest_schema
from streamling.sources.kafka.control import Watching
from streamling.sources.kafka.payload import AvroPayload, JsonPayload
from streamling.sources.kafka.source import KafkaSource, Reading
from streamling.spec.coercion import Choice
from streamling.spec.duration import Duration
from streamling.spec.faults import did_you_mean, invalid_value, missing_field, wrong_type
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import BatchLimits, Keyed, Options, SourceOptions, TopicName
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType
from streamling.telemetry.labels import node_labels

METADATA = (
    Column("__kafka_partition", INT32, nullable=False),
    Column("__kafka_offset", INT64, nullable=False),
    Column("__kafka_timestamp", DataType("timestamp", unit="ms"), nullable=False),
)
_LAST_MILLISECOND = 2**63 - 1


class DataFormat(Choice):
    AVRO = "avro"
    JSON = "json"


class Tombstones(StrEnum):
    SKIP = "skip"
    DELETE = "delete"
    ERROR = "error"


class MissingOffsets(StrEnum):
    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


def _offsets_text(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        raise wrong_type(f"must be text; write the time in quotes: '{value}'")
    return value


def _known_offsets(value: str) -> str:
    digits = value.isascii() and value.isdigit()
    if value not in ("earliest", "latest") and not (digits and int(value) <= _LAST_MILLISECOND):
        raise invalid_value(
            f"is '{value}'; accepted: earliest, latest, or milliseconds since 1970 as digits in quotes",
            hint=did_you_mean(value, ("earliest", "latest")),
        )
    return value


StartingOffsets = Annotated[str, BeforeValidator(_offsets_text), AfterValidator(_known_offsets)]
"""Where reading starts: `earliest`, `latest`, or a time in milliseconds as digits."""


class SchemaIdOverride(Options):
    """Reads messages of one schema as if they had been written with another."""

    from_: int = Field(alias="from", ge=0, description="Schema id found in messages.")
    to: int = Field(ge=0, description="Schema id to read them with.")


class TopicReading(Options):
    """Mix-in: how messages of a topic become rows."""

    validate_writer_schema_ordering: bool = Field(
        default=True, description="Stop at a message that was written with a newer schema than the one read with."
    )
    schema_id_overrides: tuple[SchemaIdOverride, ...] = Field(
        default=(), description="Schema ids to be read as others; each `from` once."
    )
    skip_schema_resolution: bool = Field(
        default=False, description="Decode with the writer's schema only, then match columns by name."
    )
    skip_schema_resolution_for_reader_schema_ids: tuple[int, ...] = Field(
        default=(), description="The same, as long as the schema read with has one of these ids."
    )
    tombstones: Tombstones = Field(
        default=Tombstones.SKIP,
        description="What a message without payload is: nothing, the deletion of its key, or a bad row. "
        "`delete` needs a primary key.",
    )
    on_missing_offsets: MissingOffsets = Field(
        default=MissingOffsets.FAIL,
        description="Where to go on when the stored offset is no longer on the broker; `fail` stops at the start.",
    )

    @field_validator("schema_id_overrides")
    @classmethod
    def _check_overrides(cls, overrides: tuple[SchemaIdOverride, ...]) -> tuple[SchemaIdOverride, ...]:
        ids = [override.from_ for override in overrides]
        if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
            raise invalid_value(f"has the schema id {twice[0]} under 'from' more than once")
        return overrides


_NESTED = ("list", "map", "struct")


class KafkaSourceOptions(TopicReading, Keyed, SourceOptions):
    """Rows from a topic. Avro columns and key come from the schema registry, JSON columns from `schema`."""

    identity_labels = ("topic",)

    topic: TopicName = Field(description="Topic to read.")
    data_format: DataFormat = Field(default=DataFormat.AVRO, description="Form of the payload; case does not matter.")
    schema_: DeclaredColumns | None = Field(
        default=None,
        alias="schema",
        validate_default=True,
        description="Columns and their types; required for JSON, not allowed for Avro.",
    )
    include_metadata: bool = Field(
        default=False, description="Add `__kafka_partition`, `__kafka_offset` and `__kafka_timestamp`."
    )
    starting_offsets: StartingOffsets = Field(
        default="earliest",
        description="Where a partition without a stored offset starts: `earliest`, `latest`, or at the first message "
        "of a time given as milliseconds since 1970 in quotes.",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Rows to gather before an epoch closes; with `batch_flush_interval` alone, `record_batch_size`. "
        "No limit: an epoch may be larger.",
    )
    batch_flush_interval: Duration | None = Field(
        default=None,
        description="Longest time to gather them; with `batch_size` alone, `record_batch_interval_ms`. With neither, "
        "rows are handed on as they come.",
    )
    parallelism: int | None = Field(
        default=None,
        ge=1,
        description="Most tasks that read the topic side by side, each whole partitions. By default the cores of the "
        "machine share the work, however it lies in partitions.",
    )
    filter: str | None = Field(
        default=None, min_length=1, description="SQL condition over the columns; other rows are dropped."
    )

    @field_validator("schema_")
    @classmethod
    def _check_schema(cls, columns: dict[str, DataType] | None, info: ValidationInfo) -> dict[str, DataType] | None:
        data_format = info.data.get("data_format")
        if data_format is DataFormat.JSON and columns is None:
            raise missing_field("is missing: 'data_format: json' needs the columns and their types")
        if data_format is DataFormat.AVRO and columns is not None:
            raise invalid_value("is only allowed with 'data_format: json'; Avro columns come from the registry")
        return columns

    @field_validator("include_metadata")
    @classmethod
    def _check_metadata(cls, include: bool, info: ValidationInfo) -> bool:
        declared = info.data.get("schema_") or {}
        taken = [column.name for column in METADATA if column.name in declared]
        if include and taken:
            raise invalid_value(f"adds the column '{taken[0]}', which 'schema' declares too")
        return include

    @property
    def batch_limits(self) -> BatchLimits:
        return self.batch_size, self.batch_flush_interval

    @property
    def streams(self) -> int | None:
        return self.parallelism

    @property
    def ends(self) -> bool:
        return False

    def output_schema(self, node: NodeSpec) -> Schema | None:
        """JSON columns are declared; those of Avro are in the registry."""
        if self.schema_ is None:
            return None
        payload = declared_fields({name: type_ for name, type_ in self.schema_.items() if name != OPERATION_COLUMN})
        return Schema((*payload, *(METADATA if self.include_metadata else ()), OPERATION_FIELD))

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        if self.tombstones is Tombstones.DELETE and not key:
            message = "'tombstones: delete' needs a primary key, which tells the row to delete"
            yield node.error(MISSING_FIELD, message, "tombstones", hint="set primary_key")
        if self.tombstones is Tombstones.DELETE:
            for column in (f for f in columns if f.name in key and f.type.kind in _NESTED):
                message = f"'tombstones: delete' cannot read '{column.name}' from message keys: it is {column.type}"
                yield node.error(INVALID_VALUE, message, "tombstones", hint="the primary key must be of simple columns")
        if self.filter is not None:
            yield from filter_problems(node, self.filter, columns, "filter")

    def check_alone(self, node: NodeSpec) -> Iterator[Finding]:
        if self.filter is not None:
            yield from untyped_filter_problems(node, self.filter, "filter")


def untyped_filter_problems(node: NodeSpec, condition: str, *path: str) -> Iterator[UserError]:
    """As `filter_problems`, as far as it can be told without the columns."""
    for problem in check_expression(condition, node=node.name, locate=node.text_locator(*path)):
        yield _refused(node, path, problem.message, problem)


def filter_problems(node: NodeSpec, condition: str, columns: Schema, *path: str) -> Iterator[UserError]:
    """What keeps a SQL condition, which stands at `path` in the node, from being used over `columns`."""
    try:
        compiled = compile_expression(condition, columns, node=node.name, locate=node.text_locator(*path))
    except InvalidPipeline as error:
        for problem in error.problems:
            yield _refused(node, path, problem.message, problem)
    except UserError as error:
        yield _refused(node, path, error.message, error)
    else:
        if compiled.type not in (BOOLEAN, NULL):
            yield _refused(node, path, f"it gives {compiled.type}, not true or false")


def _refused(node: NodeSpec, path: tuple[str, ...], why: str, problem: StreamlingError | None = None) -> UserError:
    # Tools look for the words after the node's name. The cause is in the message, so it is not chained again.
    message = f"{node.described()}: failed to create Kafka source: its filter cannot be used: {why}"
    if problem is None:
        return UserError(SQL_TYPES, message, node=node.name, where=node.locate(*path))
    code = SOURCE_FILTER if problem.condition is SQL_UNKNOWN_COLUMN else problem.condition
    where = problem.where or node.locate(*path)
    return UserError(code, message, node=node.name, where=where, hint=problem.hint, quote=problem.quote)


def topic_columns(
    node: NodeSpec, topic: str, reading: TopicReading, key: Key | None, settings: Settings, seconds: float
) -> Discovery:
    """Columns and key of an Avro topic as its registry has them."""
    found = avro_columns(node, topic, settings, seconds)
    key = key or found.primary_key
    payload, operation = found.schema.fields[:-1], found.schema.fields[-1]
    if reading.tombstones is Tombstones.DELETE:
        # The row of a tombstone has its key and nothing else.
        payload = tuple(f if f.name in key else replace(f, nullable=True) for f in payload)
    return Discovery(Schema((*payload, operation)), key)


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = node.options
    if not isinstance(options, KafkaSourceOptions):
        raise TypeError(options)
    found = topic_columns(node, options.topic, options, options.primary_key, settings, seconds)
    if not options.include_metadata:
        return found
    if taken := [column.name for column in METADATA if column.name in found.schema]:
        message = f"'include_metadata' adds the column '{taken[0]}', which the schema of the topic has too"
        raise node.error(INVALID_VALUE, message, "include_metadata")
    return replace(found, schema=Schema((*found.schema.fields[:-1], *METADATA, found.schema.fields[-1])))


# What the registry may take at the start of a run, asked again where it stumbles.
_START_S = 10.0
_STATE_SEEN_BY = {BackendType.IN_MEMORY: "process", BackendType.SQLITE: "host", BackendType.POSTGRES: "all"}


def _build(node: NodeSpec, settings: Settings) -> KafkaSource:
    options = node.options
    if not isinstance(options, KafkaSourceOptions):
        raise TypeError(options)
    connection = settings.kafka_source
    group = connection.consumer_group_id
    reading = Reading(
        node=node.ref,
        name=node.name,
        topic=options.topic,
        group=f"{group or uuid.uuid4()}-{node.ref}",
        start=options.starting_offsets,
        on_missing=options.on_missing_offsets.value,
        metadata=options.include_metadata,
        tombstones=options.tombstones.value,
        readers=options.parallelism,
        first_fetch=settings.runtime.consumer_fetch_timeout_sec,
        batch=_batch_policy(options, settings),
    )
    watching = Watching(
        name=node.name,
        topic=options.topic,
        group=reading.group if group else None,
        labels=node_labels(node),
        report_every=connection.lag_report_interval_ms / 1000,
        stalled_after=settings.runtime.stall_watchdog_timeout_sec,
        state=_STATE_SEEN_BY[settings.state_backend.backend_type],
    )
    return KafkaSource(
        reading,
        watching,
        connection,
        lambda columns: _payload(node, options, columns, settings),
        lambda columns: _condition(node, options.filter, columns),
    )


def _batch_policy(options: KafkaSourceOptions, settings: Settings) -> BatchPolicy | None:
    """What is not set of the two comes from the settings; with neither set, rows are handed on as they come."""
    policy = batch_policy(options)
    if policy is None:
        return None
    seconds = settings.record_batch_interval_ms / 1000 if policy.seconds is None else policy.seconds
    return BatchPolicy(policy.rows or settings.record_batch_size, seconds)


def _payload(
    node: NodeSpec, options: KafkaSourceOptions, columns: Schema, settings: Settings
) -> tuple[AvroPayload | JsonPayload, Key]:
    """How messages are decoded, and the key of their rows."""
    key = options.primary_key or ()
    if options.schema_ is not None:
        return JsonPayload(tuple(Column(name, type_) for name, type_ in options.schema_.items())), key
    found, rows = newest_schema(node, options.topic, settings, _START_S)
    if any(f.name not in columns for f in rows.schema):
        message = f"{node.described()}: the schema of topic '{options.topic}' changed while the run was starting"
        raise TransientError(SCHEMA_OUTDATED, message, node=node.name, where=node.where, hint="start again")
    payload = AvroPayload(
        f"{options.topic}-value",
        found,
        overrides=tuple((o.from_, o.to) for o in options.schema_id_overrides),
        by_name=options.skip_schema_resolution,
        by_name_for=options.skip_schema_resolution_for_reader_schema_ids,
        ordered=options.validate_writer_schema_ordering,
    )
    return payload, key or rows.primary_key


def _condition(node: NodeSpec, condition: str | None, columns: Schema) -> Expression | None:
    if condition is None:
        return None
    return compile_expression(condition, columns, node=node.name, locate=node.text_locator("filter"))


register(Kind(Role.SOURCE, "kafka", KafkaSourceOptions, _build, probe=_probe, sets_aside=True))
