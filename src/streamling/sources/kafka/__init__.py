"""`kafka`: the messages of a topic: Avro, JSON, or bytes as they are.

Delivery: a slice is a range of offsets of one partition. A replay gives the same rows, or fewer if the broker has
expired or compacted some; aborted transactions are never read. The next offset of each partition is stored with every
epoch and has precedence over the offsets of the consumer group, which are committed to the broker afterwards.

Processes with the same `consumer_group_id`, application and state divide the partitions among themselves; a process of
another application ends with an error. A partition gets
a new owner between two epochs; a former owner that does not know about the takeover is fenced, and its positions are
not stored. Without a group id a process reads all partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Self

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
from streamling.sources.kafka.avro_columns import newest_schema
from streamling.sources.kafka.control import ControlOptions
from streamling.sources.kafka.data_format import DataFormat, Envelope, raw_columns
from streamling.sources.kafka.payload import AvroPayload, DeclaredPayload, Payload, PayloadForm
from streamling.sources.kafka.source import KafkaSource
from streamling.sources.kafka.starts import NEWEST
from streamling.sources.kafka.topic_reading import TopicReading
from streamling.spec.duration import Duration
from streamling.spec.faults import did_you_mean, invalid_value, missing_field, wrong_type
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import BatchLimits, Keyed, Options, SourceOptions, TopicName
from streamling.spec.settings import Settings
from streamling.telemetry.labels import node_labels

METADATA = (
    Column("__kafka_partition", INT32, nullable=False),
    Column("__kafka_offset", INT64, nullable=False),
    Column("__kafka_timestamp", DataType("timestamp", unit="ms"), nullable=False),
)
_LAST_MILLISECOND = 2**63 - 1


class Tombstones(StrEnum):
    SKIP = "skip"
    DELETE = "delete"
    ERROR = "error"


class MissingOffsets(StrEnum):
    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


def _check_text(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        raise wrong_type(f"must be text; write the time in quotes: '{value}'")
    return value


def _check_offsets(value: str) -> str:
    digits = value.isascii() and value.isdigit()
    if value not in ("earliest", "latest") and not (digits and int(value) <= _LAST_MILLISECOND):
        raise invalid_value(
            f"is '{value}'; accepted: earliest, latest, or milliseconds since 1970 as digits in quotes",
            hint=did_you_mean(value, ("earliest", "latest")),
        )
    return value


StartingOffsets = Annotated[str, BeforeValidator(_check_text), AfterValidator(_check_offsets)]
"""Where reading starts: `earliest`, `latest`, or a time in milliseconds as digits."""


class SchemaIdOverride(Options):
    """Reads messages of one schema as if they had been written with another."""

    from_: int = Field(alias="from", ge=0, description="Schema id found in messages.")
    to: int = Field(ge=0, description="Schema id to read them with.")


class ReadsTopic(Options):
    """Mix-in: how messages of a topic become rows."""

    validate_writer_schema_ordering: bool = Field(
        default=True, description="Stop at a message whose writer schema is newer than the reader schema."
    )
    schema_id_overrides: tuple[SchemaIdOverride, ...] = Field(
        default=(), description="Replacements of schema ids; each `from` only once."
    )
    skip_schema_resolution: bool = Field(
        default=False,
        description="Skip Avro schema resolution: decode with the writer schema, then match columns by name.",
    )
    skip_schema_resolution_for_reader_schema_ids: tuple[int, ...] = Field(
        default=(), description="The same, but only if the reader schema has one of these ids."
    )
    tombstones: Tombstones = Field(
        default=Tombstones.SKIP,
        description="What a message without payload means: skip it, delete the row with its key, or reject it as a bad "
        "row. `delete` needs a primary key.",
    )
    on_missing_offsets: MissingOffsets = Field(
        default=MissingOffsets.FAIL,
        description="Where to resume if the broker no longer has the stored offset; `fail` ends the run.",
    )

    @field_validator("schema_id_overrides")
    @classmethod
    def _check_overrides(cls, overrides: tuple[SchemaIdOverride, ...]) -> tuple[SchemaIdOverride, ...]:
        ids = [override.from_ for override in overrides]
        if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
            raise invalid_value(f"has the schema id {twice[0]} under 'from' more than once")
        return overrides


_NESTED = ("list", "map", "struct")
# Messages per partition that a preview of a source with `starting_offsets: latest` begins with.
_PREVIEWED = 100


class KafkaSourceOptions(ReadsTopic, Keyed, SourceOptions):
    """Reads a topic. Avro columns and key come from the schema registry, other columns from `schema`."""

    identity_labels = ("topic",)

    topic: TopicName = Field(description="Topic to read.")
    data_format: DataFormat = Field(default=DataFormat.AVRO, description="Format of the payload; case does not matter.")
    schema_: DeclaredColumns | None = Field(
        default=None,
        alias="schema",
        validate_default=True,
        description="Columns and their types; required for JSON, not allowed for Avro. For `raw`, the name and type of "
        "the one column, `string` or `binary`.",
    )
    envelope: Envelope | None = Field(
        default=None,
        description="`debezium`: the payload is Debezium's envelope. The columns are those of the rows inside of it, "
        "and `_gs_op` comes from its `op`.",
    )
    include_metadata: bool = Field(
        default=False, description="Add `__kafka_partition`, `__kafka_offset` and `__kafka_timestamp`."
    )
    starting_offsets: StartingOffsets = Field(
        default="earliest",
        description="Where the partitions start that the topic has at the first start: `earliest`, `latest`, or at the "
        "first message since a time, given as milliseconds since 1970 in quotes.",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Rows to collect before an epoch closes; if only `batch_flush_interval` is set, "
        "`record_batch_size`. This is not a limit: an epoch may be larger.",
    )
    batch_flush_interval: Duration | None = Field(
        default=None,
        description="Longest time to collect them; if only `batch_size` is set, `record_batch_interval_ms`. If neither "
        "is set, epochs do not wait for rows.",
    )
    parallelism: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of tasks that read the topic in parallel, each reading whole partitions. By "
        "default all cores are used, and a single partition may be read by several tasks.",
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
            raise invalid_value("is not allowed with 'data_format: avro'; Avro columns come from the registry")
        return raw_columns(columns) if data_format is DataFormat.RAW else columns

    @field_validator("envelope")
    @classmethod
    def _check_envelope(cls, envelope: Envelope | None, info: ValidationInfo) -> Envelope | None:
        if envelope is not None and info.data.get("data_format") is DataFormat.RAW:
            raise invalid_value("is not allowed with 'data_format: raw'; its payloads are not looked into")
        if envelope is not None and OPERATION_COLUMN in (info.data.get("schema_") or ()):
            raise invalid_value(f"gives every row its operation, but 'schema' declares '{OPERATION_COLUMN}' too")
        return envelope

    @field_validator("include_metadata")
    @classmethod
    def _check_metadata(cls, include: bool, info: ValidationInfo) -> bool:
        declared = info.data.get("schema_") or {}
        duplicates = [column.name for column in METADATA if column.name in declared]
        if include and duplicates:
            raise invalid_value(f"adds the column '{duplicates[0]}', which 'schema' declares too")
        return include

    def for_preview(self) -> Self:
        """Rows are shown as soon as they arrive; with `latest`, the newest messages that are there are shown too."""
        start = f"{NEWEST}{_PREVIEWED}" if self.starting_offsets == "latest" else self.starting_offsets
        changes = {"starting_offsets": start, "batch_size": None, "batch_flush_interval": None}
        return super().for_preview().model_copy(update=changes)

    @property
    def batch_limits(self) -> BatchLimits:
        return self.batch_size, self.batch_flush_interval

    @property
    def streams(self) -> int | None:
        return self.parallelism

    @property
    def ends(self) -> bool:
        return False

    @property
    def row_filter(self) -> tuple[str, tuple[str, ...]] | None:
        return None if self.filter is None else (self.filter, ("filter",))

    def output_schema(self, node: NodeSpec) -> Schema | None:
        """Avro columns come from the schema registry, so they are not known here; others are declared."""
        if self.schema_ is None:
            return None
        payload = declared_fields({name: type_ for name, type_ in self.schema_.items() if name != OPERATION_COLUMN})
        return Schema((*payload, *(METADATA if self.include_metadata else ()), OPERATION_FIELD))

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        if self.tombstones is Tombstones.DELETE and not key:
            message = "'tombstones: delete' needs a primary key, which identifies the row to delete"
            yield node.error(MISSING_FIELD, message, "tombstones", hint="set primary_key")
        if self.tombstones is Tombstones.DELETE and self.data_format is DataFormat.RAW:
            message = "'tombstones: delete' needs key columns, which 'data_format: raw' does not read from messages"
            yield node.error(INVALID_VALUE, message, "tombstones")
        elif self.tombstones is Tombstones.DELETE:
            for column in (f for f in columns if f.name in key and f.type.kind in _NESTED):
                message = f"'tombstones: delete' cannot read '{column.name}' from message keys: it is {column.type}"
                yield node.error(
                    INVALID_VALUE,
                    message,
                    "tombstones",
                    hint="the primary key must not have list, map or struct columns",
                )
        if self.filter is not None:
            yield from filter_problems(node, self.filter, columns, "filter")

    def check_alone(self, node: NodeSpec) -> Iterator[Finding]:
        if self.filter is not None:
            yield from untyped_filter_problems(node, self.filter, "filter")


def untyped_filter_problems(node: NodeSpec, condition: str, *path: str) -> Iterator[UserError]:
    """The problems of `filter_problems` that can be found without the columns."""
    for problem in check_expression(condition, node=node.name, locate=node.text_locator(*path)):
        yield _filter_error(node, path, problem.message, problem)


def filter_problems(node: NodeSpec, condition: str, columns: Schema, *path: str) -> Iterator[UserError]:
    """Why a SQL condition, the option at `path` of the node, cannot be used with `columns`."""
    try:
        compiled = compile_expression(condition, columns, node=node.name, locate=node.text_locator(*path))
    except InvalidPipeline as error:
        for problem in error.problems:
            yield _filter_error(node, path, problem.message, problem)
    except UserError as error:
        yield _filter_error(node, path, error.message, error)
    else:
        if compiled.type not in (BOOLEAN, NULL):
            yield _filter_error(node, path, f"its type is {compiled.type}, not boolean")


def _filter_error(node: NodeSpec, path: tuple[str, ...], why: str, problem: StreamlingError | None = None) -> UserError:
    # Tools look for the words after the node's name. The message contains the cause, so the cause is not chained.
    message = f"{node.described()}: failed to create Kafka source: its filter cannot be used: {why}"
    if problem is None:
        return UserError(SQL_TYPES, message, node=node.name, where=node.locate(*path))
    code = SOURCE_FILTER if problem.condition is SQL_UNKNOWN_COLUMN else problem.condition
    where = problem.where or node.locate(*path)
    return UserError(code, message, node=node.name, where=where, hint=problem.hint, quote=problem.quote)


def topic_columns(
    node: NodeSpec,
    topic: str,
    options: ReadsTopic,
    key: Key | None,
    settings: Settings,
    seconds: float,
    *,
    envelope: bool = False,
) -> Discovery:
    """Columns and key of an Avro topic, from the schema registry. `envelope`: the columns of the rows in envelopes."""
    rows = newest_schema(node, topic, settings, seconds, envelope=envelope)[1]
    key = key or rows.primary_key
    payload, operation = rows.schema.fields[:-1], rows.schema.fields[-1]
    if options.tombstones is Tombstones.DELETE:
        # The row of a tombstone has only its key columns.
        payload = tuple(f if f.name in key else replace(f, nullable=True) for f in payload)
    return Discovery(Schema((*payload, operation)), key)


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = node.options
    if not isinstance(options, KafkaSourceOptions):
        raise TypeError(options)
    envelope = options.envelope is not None
    discovery = topic_columns(node, options.topic, options, options.primary_key, settings, seconds, envelope=envelope)
    if not options.include_metadata:
        return discovery
    if duplicates := [column.name for column in METADATA if column.name in discovery.schema]:
        message = f"'include_metadata' adds the column '{duplicates[0]}', which the schema of the topic has too"
        raise node.error(INVALID_VALUE, message, "include_metadata")
    *payload, operation = discovery.schema.fields
    return replace(discovery, schema=Schema((*payload, *METADATA, operation)))


# The schema registry must answer within this time at the start of a run, retries included.
_START_S = 10.0


def _build(node: NodeSpec, settings: Settings) -> KafkaSource:
    return make_source(node, settings, node_labels(node))


def make_source(node: NodeSpec, settings: Settings, labels: Mapping[str, str]) -> KafkaSource:
    """`labels`: of its metrics."""
    options = node.options
    if not isinstance(options, KafkaSourceOptions):
        raise TypeError(options)
    connection = settings.kafka_source
    group = connection.consumer_group_id
    reading = TopicReading(
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
    control = ControlOptions(
        name=node.name,
        topic=options.topic,
        group=reading.group if group else None,
        labels=labels,
        report_every=connection.lag_report_interval_ms / 1000,
        stalled_after=settings.runtime.stall_watchdog_timeout_sec,
        asked_every=settings.record_batch_interval_ms / 1000,
    )
    return KafkaSource(
        reading,
        control,
        connection,
        lambda columns: _payload(node, options, columns, settings),
        lambda columns: _condition(node, options.filter, columns),
    )


def _batch_policy(options: KafkaSourceOptions, settings: Settings) -> BatchPolicy | None:
    """The option that is not set comes from the settings; None if neither is set: epochs then do not wait for rows."""
    policy = batch_policy(options)
    if policy is None:
        return None
    seconds = settings.record_batch_interval_ms / 1000 if policy.seconds is None else policy.seconds
    return BatchPolicy(policy.rows or settings.record_batch_size, seconds)


def _payload(node: NodeSpec, options: KafkaSourceOptions, columns: Schema, settings: Settings) -> tuple[Payload, Key]:
    """How messages are decoded, and the key of their rows."""
    key = options.primary_key or ()
    if options.schema_ is not None:
        return DeclaredPayload(tuple(Column(n, t) for n, t in options.schema_.items()), _form(options)), key
    envelope = options.envelope is not None
    schema, rows = newest_schema(node, options.topic, settings, _START_S, envelope=envelope)
    if any(f.name not in columns for f in rows.schema):
        message = f"{node.described()}: the schema of topic '{options.topic}' changed while the run was starting"
        raise TransientError(SCHEMA_OUTDATED, message, node=node.name, where=node.where, hint="start again")
    payload = AvroPayload(
        f"{options.topic}-value",
        schema,
        overrides=tuple((o.from_, o.to) for o in options.schema_id_overrides),
        by_name=options.skip_schema_resolution,
        by_name_for=options.skip_schema_resolution_for_reader_schema_ids,
        ordered=options.validate_writer_schema_ordering,
        envelope=envelope,
    )
    return payload, key or rows.primary_key


def _form(options: KafkaSourceOptions) -> PayloadForm:
    if options.data_format is DataFormat.RAW:
        return PayloadForm.RAW
    return PayloadForm.OBJECT if options.envelope is None else PayloadForm.ENVELOPE


def _condition(node: NodeSpec, condition: str | None, columns: Schema) -> Expression | None:
    if condition is None:
        return None
    return compile_expression(condition, columns, node=node.name, locate=node.text_locator("filter"))


register(Kind(Role.SOURCE, "kafka", KafkaSourceOptions, _build, probe=_probe))
