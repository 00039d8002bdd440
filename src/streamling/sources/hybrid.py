"""`hybrid`: the history of a topic from ClickHouse, then the topic itself from the end of that history."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import Discovery, Kind, register
from streamling.errors import SCHEMA_UNUSABLE, InvalidPipeline, StreamlingError, TransientError
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.sources.clickhouse import ReadsTable
from streamling.sources.clickhouse.columns import look_up_table
from streamling.sources.kafka import (
    ReadsTopic,
    StartingOffsets,
    Tombstones,
    filter_problems,
    topic_columns,
    untyped_filter_problems,
)
from streamling.spec.faults import invalid_value, missing_field
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Keyed, Options, SourceOptions, TopicName
from streamling.spec.settings import Settings

_WHOLE = re.compile(r"[-+]?[0-9]+")
# Time for a table if a slow schema registry has used up the rest.
_LEAST_SECONDS = 1.0


class BoundedSource(ReadsTable):
    """A phase that reads a table and ends. `columns` is accepted but not used: the columns are those of the topic."""

    source_type: Literal["clickhouse"] = Field(description="Kind of the phase.")

    @field_validator("start_at")
    @classmethod
    def _check_start(cls, start: str | None) -> str | None:
        # Tables with the history of a topic are sorted by whole numbers.
        if start is not None and not _WHOLE.fullmatch(start.split(",")[0].strip()):
            raise invalid_value(f"is '{start}'; it must begin with a whole number")
        return start


class UnboundedSource(ReadsTopic):
    """The last phase, which reads an Avro topic and does not end."""

    source_type: Literal["kafka"] = Field(description="Kind of the phase.")
    topic: TopicName = Field(description="Topic to read; its schema is the schema of the source.")
    filter: str | None = Field(
        default=None, min_length=1, description="SQL condition over the columns; other rows are dropped."
    )
    start_at: StartingOffsets = Field(
        default="earliest", description="Where reading starts if the offset table has no offset."
    )


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

    bounded_sources: tuple[BoundedSource, ...] = Field(description="Tables to read, in this order; at least one.")
    unbounded_source: UnboundedSource = Field(description="Topic to read after them.")
    offset_table: OffsetTable | None = Field(
        default=None, description="Table with the first offsets of the topic; by default derived from its name."
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
        if keyless and unbounded.tombstones is Tombstones.DELETE:
            raise missing_field("is 'delete', which needs 'primary_key' on the node", field="tombstones")
        return unbounded

    @property
    def row_filter(self) -> tuple[str, tuple[str, ...]] | None:
        condition = self.unbounded_source.filter
        return None if condition is None else (condition, ("unbounded_source", "filter"))

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        if self.unbounded_source.filter is not None:
            yield from filter_problems(node, self.unbounded_source.filter, columns, "unbounded_source", "filter")

    def check_alone(self, node: NodeSpec) -> Iterator[Finding]:
        if self.unbounded_source.filter is not None:
            yield from untyped_filter_problems(node, self.unbounded_source.filter, "unbounded_source", "filter")


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = node.options
    if not isinstance(options, HybridOptions):
        raise TypeError(options)
    deadline = time.monotonic() + seconds
    topic = options.unbounded_source
    discovery = topic_columns(node, topic.topic, topic, options.primary_key, settings, seconds)
    problems: list[StreamlingError] = []
    for number, phase in enumerate(options.bounded_sources):
        left = max(deadline - time.monotonic(), _LEAST_SECONDS)
        try:
            _check_table(
                node, phase.table_name, discovery.schema, settings, left, "bounded_sources", number, "table_name"
            )
        except TransientError:
            raise  # the other tables are on the same server
        except StreamlingError as error:
            problems.append(error)
    if problems:
        raise InvalidPipeline(problems)
    # The key is never taken from the schema: tables and topic together may have another one.
    return Discovery(discovery.schema, options.primary_key or ())


def _check_table(
    node: NodeSpec, name: str, columns: Schema, settings: Settings, seconds: float, *path: str | int
) -> None:
    """Every table must have the columns of the topic. Their types may differ: values are cast."""
    table = look_up_table(node, name, settings, seconds, *path)
    if missing := table.missing(columns.names):
        message = f"table '{name}' lacks columns of the topic: [{', '.join(missing)}]"
        raise node.error(SCHEMA_UNUSABLE, message, *path, hint=f"columns of the table: {', '.join(table.types)}")


register(Kind(Role.SOURCE, "hybrid", HybridOptions, probe=_probe))
