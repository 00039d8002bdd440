"""Options that nodes of several kinds have, as models that the kinds extend.

Models are strict: no cast between YAML types, no unknown fields; instances are frozen. A kind derives from
`SourceOptions`, `TransformOptions` or `SinkOptions`, adds the mix-ins whose fields it has (written before the base:
fields are listed from the last base to the first), and adds its own fields with descriptions, from which the
documentation is generated. Checks are pydantic validators; see `faults` for what they raise. Put a check that
compares fields on the later one with `validate_default=True`, so that it is reported together with the problems of
other fields.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from streamling.errors import Condition
from streamling.spec.duration import Duration
from streamling.spec.faults import invalid_value, missing_field, wrong_type

MAX_LABELS = 20
MAX_LABEL_BYTES = 256
MAX_TOPIC = 249
RESERVED_LABELS = frozenset({"id", "topology_node_type", "operator_type", "service_instance_id"})
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def label_fault(key: str, value: str) -> str | None:
    """What is wrong with a label; the text continues a sentence that begins with the label's name."""
    if key in RESERVED_LABELS:
        return f"has the name '{key}', which is reserved"
    if key.startswith("__"):
        return "has a name that starts with two underscores, which is reserved"
    if not _LABEL.fullmatch(key):
        return f"has the name '{key}'; a name may have letters, digits and '_', and must not begin with a digit"
    if len(value.encode("utf-8", "surrogatepass")) > MAX_LABEL_BYTES:
        return f"must be no longer than {MAX_LABEL_BYTES} bytes"
    if _CONTROL.search(value):
        return "must not have control characters"
    return None


class Options(BaseModel):
    """A strict map inside a node."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class EventTimeUnit(StrEnum):
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    MICROSECONDS = "microseconds"


class EventTime(Options):
    """The column with the event time of a row."""

    column: str = Field(min_length=1, description="Column with the event time.")
    unit: EventTimeUnit | None = Field(
        default=None, description="Unit of an integer column; ignored for timestamp columns."
    )


class Telemetry(Options):
    """Additions to the metrics of a node."""

    event_time: EventTime | None = Field(default=None, description="Event time of the node's rows.")
    labels: dict[str, str] = Field(default_factory=dict, description="Extra labels for all metrics of the node.")

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        if len(labels) > MAX_LABELS:
            raise invalid_value(f"has {len(labels)} labels; at most {MAX_LABELS} are allowed")
        for key, value in labels.items():
            if (fault := label_fault(key, value)) is not None:
                raise invalid_value(fault, field=key)
        return labels


def _check_topic(topic: str) -> str:
    if topic in (".", ".."):
        raise invalid_value(f"is '{topic}', which is not a valid topic name")
    if len(topic) > MAX_TOPIC:
        raise invalid_value(f"must be no longer than {MAX_TOPIC} characters")
    if (odd := re.search(r"[^A-Za-z0-9._-]", topic)) is not None:
        raise invalid_value(f"has the character '{odd[0]}'; topic names may have letters, digits, '.', '_' and '-'")
    return topic


TopicName = Annotated[str, Field(min_length=1), AfterValidator(_check_topic)]
"""A topic name that Kafka accepts."""


class OnError(StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


MaxLetters = Annotated[
    int | None,
    Field(ge=1, description="Most bad rows of one epoch; with more the run ends. Default: no limit."),
]


class FileLetters(Options):
    """Dead letters as JSON lines in a local directory."""

    type: Literal["file"] = Field(description="Kind of destination.")
    path: str = Field(min_length=1, description="Local directory, created if missing.")
    max: MaxLetters = None

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if "://" in path:
            raise invalid_value("must be a local directory, not a URL of another file system")
        return path


class KafkaLetters(Options):
    """Dead letters as messages in a compacted topic, through the connection `kafka_sink`."""

    type: Literal["kafka"] = Field(description="Kind of destination.")
    topic: TopicName = Field(description="Topic, created if missing.")
    max: MaxLetters = None


class PostgresLetters(Options):
    """Dead letters as rows, through the connection `postgres_sink` or the connection named after the node."""

    type: Literal["postgres"] = Field(description="Kind of destination.")
    table: str = Field(default="dead_letters", min_length=1, description="Table, created if missing.")
    schema_: str = Field(
        default="streamling", alias="schema", min_length=1, description="Postgres schema, created if missing."
    )
    max: MaxLetters = None


DeadLetter = Annotated[FileLetters | KafkaLetters | PostgresLetters, Field(discriminator="type")]


BatchLimits = tuple[int | None, Duration | None]


class NodeOptions(Options):
    """Fields of every node of every kind."""

    namespace: ClassVar[str] = "nodes"
    """Names are unique within a namespace. A kind that cannot be read by `from` may have one of its own."""

    joined: ClassVar[bool] = False
    """Whether queries join the node as a table; then it is no stream that nodes read."""

    own_connection: ClassVar[bool] = False
    """Whether the settings may define a Postgres connection under the node's name."""

    reads_by_query: ClassVar[bool] = False
    """Whether the node reads the tables of its field `sql`; otherwise it reads what `from` names."""

    opaque: ClassVar[tuple[str, ...]] = ()
    """Fields whose text is not examined: programs, or options of plugins."""

    identity_labels: ClassVar[tuple[str, ...]] = ()
    """Metric labels that the kind sets itself; `telemetry.labels` must not use them."""

    @property
    def batch_limits(self) -> BatchLimits:
        """The rows and the time that a batch waits for; None for a limit that the node does not set."""
        return None, None

    @property
    def streams(self) -> int | None:
        """The number of streams that the node sets."""
        return None

    @property
    def own_key(self) -> tuple[str, ...]:
        """The key columns that the node sets itself."""
        return ()

    @property
    def fingerprint(self) -> str:
        """Changes if the same input could give other rows."""
        return repr(self)

    def for_preview(self) -> Self:
        """The options with which a preview runs the node: it stores no bad rows."""
        if self.on_error is not OnError.DEAD_LETTER:
            return self
        return self.model_copy(update={"on_error": OnError.SKIP, "dead_letter": None})

    type: str = Field(min_length=1, description="Type of the node; case matters.")
    telemetry: Telemetry = Field(default_factory=Telemetry, description="Event time and labels of the node's metrics.")
    on_error: OnError = Field(
        default=OnError.FAIL,
        description="What happens to a bad row: stop the pipeline, skip the row, or store it as a dead letter.",
    )
    dead_letter: DeadLetter | None = Field(
        default=None,
        validate_default=True,
        description="Where dead letters are stored; required with `on_error: dead_letter`, not allowed without it.",
    )

    @field_validator("telemetry", mode="before")
    @classmethod
    def _empty_telemetry(cls, value: object) -> object:
        return {} if value is None else value

    @field_validator("telemetry")
    @classmethod
    def _check_identity(cls, telemetry: Telemetry) -> Telemetry:
        reserved = [key for key in cls.identity_labels if key in telemetry.labels]
        if reserved:
            raise invalid_value(f"has the label '{reserved[0]}', which this type of node sets itself", field="labels")
        return telemetry

    @field_validator("dead_letter")
    @classmethod
    def _check_destination(cls, destination: DeadLetter | None, info: ValidationInfo) -> DeadLetter | None:
        on_error = info.data.get("on_error")
        if on_error is OnError.DEAD_LETTER and destination is None:
            raise missing_field("is missing: 'on_error: dead_letter' needs a destination")
        if on_error in (OnError.FAIL, OnError.SKIP) and destination is not None:
            raise invalid_value("is only allowed with 'on_error: dead_letter'")
        return destination


def _column_names(value: object) -> object:
    if value is None or isinstance(value, tuple):
        return value or None
    if not isinstance(value, str):
        raise wrong_type("must be one text with the columns separated by commas, not a list")
    # Duplicate names are dropped.
    return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip())) or None


ColumnNames = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_column_names),
    PlainSerializer(lambda columns: ", ".join(columns) if columns else None, return_type=str | None),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}], "examples": ["id", "tenant, id"]}),
]
"""Columns, written as one text with commas; None if the text names none."""

PrimaryKey = ColumnNames


class Keyed(Options):
    """Mix-in: the node may set its key."""

    primary_key: PrimaryKey = Field(default=None, description="Key columns, separated by commas.")

    @property
    def own_key(self) -> tuple[str, ...]:
        return self.primary_key or ()


class RequiredKey(Options):
    """Mix-in: the node must set its key."""

    primary_key: PrimaryKey = Field(description="Key columns, separated by commas.")

    @field_validator("primary_key")
    @classmethod
    def _check_key(cls, key: tuple[str, ...] | None) -> tuple[str, ...]:
        if not key:
            raise invalid_value("must name at least one column")
        return key

    @property
    def own_key(self) -> tuple[str, ...]:
        return self.primary_key or ()


class Batched(Options):
    """Mix-in: the node's input is re-batched. If neither field is set, batches pass unchanged."""

    batch_size: int | None = Field(default=None, ge=1, description="Number of rows that a batch waits for.")
    batch_flush_interval: Duration | None = Field(default=None, description="Longest wait of a partial batch.")

    @property
    def batch_limits(self) -> BatchLimits:
        return self.batch_size, self.batch_flush_interval


class Parallel(Options):
    """Mix-in: the node may run on several streams."""

    parallelism: int | None = Field(default=None, ge=1, description="Number of parallel streams of the node.")

    @property
    def streams(self) -> int | None:
        return self.parallelism


class SingleStream(Options):
    """Mix-in: the node runs on one stream unless it sets more."""

    parallelism: int = Field(default=1, ge=1, description="Number of parallel streams of the node.")

    @property
    def streams(self) -> int | None:
        return self.parallelism


class Deduplicating(Options):
    """Mix-in: the sink writes only the last row of each key in a batch."""

    deduplicate: bool = Field(default=True, description="Write only the last row of each key in a batch.")


class ReadsNode(Options):
    """Mix-in: the node reads one other node."""

    from_: str = Field(alias="from", min_length=1, description="Name of the source or transform to read.")


class SourceOptions(NodeOptions):
    """Base of all sources."""

    @property
    def ends(self) -> bool:
        """Whether the source is bounded, as job mode requires."""
        return True

    @property
    def carries_changes(self) -> bool:
        """Whether its rows may be updates or deletes, not only inserts."""
        return True

    @property
    def row_filter(self) -> tuple[str, tuple[str, ...]] | None:
        """The SQL condition that drops rows of the source, and the field it is written in."""
        return None


class TransformOptions(NodeOptions):
    """Base of all transforms. Those that read a node by name add `ReadsNode`."""


class SinkOptions(Keyed, ReadsNode, NodeOptions):
    """Base of all sinks."""

    keeps_rows_by_key: ClassVar[bool] = False
    """Whether the target has one row per primary key, which stays until a delete removes it."""

    key_required: ClassVar[Condition | None] = None
    """Set by sinks that cannot work without a primary key, their own or that of the node they read: the condition to
    report if there is none."""
