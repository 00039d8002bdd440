"""What the YAML of a hybrid source may say about its phases."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from streamling.sources.clickhouse import ReadsTable
from streamling.sources.file import InfersColumns, ReadsFiles
from streamling.sources.kafka import ReadsTopic, StartingOffsets
from streamling.spec.duration import Duration, parse_duration
from streamling.spec.faults import invalid_value
from streamling.spec.pipeline.options import Options, TopicName

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
