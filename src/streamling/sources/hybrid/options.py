"""What the YAML of a hybrid source may say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.sources.clickhouse import ReadsTable
from streamling.sources.file import InfersColumns, ReadsFiles
from streamling.sources.kafka import (
    ReadsTopic,
    StartingOffsets,
    Tombstones,
    filter_problems,
    untyped_filter_problems,
)
from streamling.spec.duration import Duration, parse_duration
from streamling.spec.faults import invalid_value, missing_field
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import Keyed, Options, SourceOptions, TopicName

_WHOLE = re.compile(r"[-+]?[0-9]+")


class BoundedTable(ReadsTable):
    """A phase that reads a table and ends. `columns` is accepted but not used: the columns are those of the unbounded
    phase."""

    source_type: Literal["clickhouse"] = Field(description="Kind of the phase.")

    @field_validator("start_at")
    @classmethod
    def _check_start(cls, start: str | None) -> str | None:
        # Tables with the history of a topic are sorted by whole numbers.
        if start is not None and not _WHOLE.fullmatch(start.split(",")[0].strip()):
            raise invalid_value(f"is '{start}'; it must begin with a whole number")
        return start


class BoundedFiles(ReadsFiles):
    """A phase that reads the files that exist when it begins, each of them once, and ends."""

    source_type: Literal["file"] = Field(description="Kind of the phase.")


class UnboundedTopic(ReadsTopic):
    """The last phase, which reads an Avro topic and does not end."""

    source_type: Literal["kafka"] = Field(description="Kind of the phase.")
    topic: TopicName = Field(description="Topic to read; its schema is the schema of the source.")
    filter: str | None = Field(
        default=None, min_length=1, description="SQL condition over the columns; other rows are dropped."
    )
    start_at: StartingOffsets = Field(
        default="earliest", description="Where reading starts if the offset table has no offset."
    )


class UnboundedFiles(InfersColumns):
    """The last phase, which reads new and changed files and does not end. Their columns are those of the source."""

    source_type: Literal["file"] = Field(description="Kind of the phase.")
    poll_interval: Duration = Field(
        default=parse_duration("5s"), description="Pause after a listing without new or changed files."
    )


BoundedSource = Annotated[BoundedTable | BoundedFiles, Field(discriminator="source_type")]
UnboundedSource = Annotated[UnboundedTopic | UnboundedFiles, Field(discriminator="source_type")]


class OffsetTable(Options):
    """The table with the offsets up to which a topic is in ClickHouse."""

    topic_name: str = Field(min_length=1, description="Name of the topic in the table, compared exactly.")
    table_name: str = Field(default="kafka_offsets", min_length=1, description="Name of the table.")
    topic_column: str = Field(default="topic", min_length=1, description="Column of the topic.")
    partition_column: str = Field(default="partition", min_length=1, description="Column of the partition.")
    offset_column: str = Field(default="offset", min_length=1, description="Column of the offset.")


class HybridOptions(Keyed, SourceOptions):
    """Reads the bounded phases in order, then the unbounded one, as one stream of rows with one schema. In job mode it
    ends after the last bounded phase."""

    identity_labels = ("table", "topic")

    bounded_sources: tuple[BoundedSource, ...] = Field(
        description="Tables and files to read, in this order; at least one."
    )
    unbounded_source: UnboundedSource = Field(description="Topic or files to read after them.")
    offset_table: OffsetTable | None = Field(
        default=None,
        description="Table with the first offsets of the topic. By default `kafka_offsets`, if there is one, with the "
        "name of the topic in which every dot is an underscore.",
    )

    @field_validator("bounded_sources")
    @classmethod
    def _check_phases(cls, phases: tuple[BoundedSource, ...]) -> tuple[BoundedSource, ...]:
        if not phases:
            raise invalid_value("must not be empty")
        return phases

    @field_validator("unbounded_source")
    @classmethod
    def _check_tombstones(cls, unbounded: UnboundedSource, info: ValidationInfo) -> UnboundedSource:
        # Unlike a kafka source, a hybrid source takes no key from the Avro schema.
        keyless = "primary_key" in info.data and info.data["primary_key"] is None
        if keyless and isinstance(unbounded, UnboundedTopic) and unbounded.tombstones is Tombstones.DELETE:
            raise missing_field("is 'delete', which needs 'primary_key' on the node", field="tombstones")
        return unbounded

    @field_validator("offset_table")
    @classmethod
    def _check_offsets(cls, table: OffsetTable | None, info: ValidationInfo) -> OffsetTable | None:
        if table is not None and isinstance(info.data.get("unbounded_source"), UnboundedFiles):
            raise invalid_value("is not allowed with an unbounded source of files: only topics have offsets")
        return table

    @property
    def _filter(self) -> str | None:
        return self.unbounded_source.filter if isinstance(self.unbounded_source, UnboundedTopic) else None

    @property
    def row_filter(self) -> tuple[str, tuple[str, ...]] | None:
        return None if self._filter is None else (self._filter, ("unbounded_source", "filter"))

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        if self._filter is not None:
            yield from filter_problems(node, self._filter, columns, "unbounded_source", "filter")

    def check_alone(self, node: NodeSpec) -> Iterator[Finding]:
        if self._filter is not None:
            yield from untyped_filter_problems(node, self._filter, "unbounded_source", "filter")
