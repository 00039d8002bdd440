"""A few kinds of nodes that look like real ones."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from streamling.spec.pipeline import Kinds, Role
from streamling.spec.pipeline.options import (
    Batched,
    Keyed,
    Options,
    Parallel,
    RequiredKey,
    SinkOptions,
    SourceOptions,
    TransformOptions,
)
from streamling.spec.settings.blocks import Compression


class Override(Options):
    from_: int = Field(alias="from")
    to: int


class KafkaSource(Parallel, Batched, Keyed, SourceOptions):
    identity_labels = ("topic",)

    topic: str
    starting_offsets: str | int = "earliest"
    include_metadata: bool = False
    schema_: dict[str, str] | None = Field(default=None, alias="schema")
    schema_id_overrides: tuple[Override, ...] = ()
    payload_version: Literal[0, 1] = 0


class Sql(Parallel, RequiredKey, TransformOptions):
    sql: str


class Table(TransformOptions):
    namespace = "tables"


class PrintSink(Parallel, Batched, SinkOptions):
    compression: Compression = Compression.NONE
    headers: dict[str, str] = Field(default_factory=dict)


class PluginSink(SinkOptions):
    model_config = ConfigDict(extra="allow")


KINDS: Kinds = {
    (Role.SOURCE, "kafka"): KafkaSource,
    (Role.TRANSFORM, "sql"): Sql,
    (Role.TRANSFORM, "dynamic_table"): Table,
    (Role.SINK, "print"): PrintSink,
    (Role.SINK, "queue"): PluginSink,
}
