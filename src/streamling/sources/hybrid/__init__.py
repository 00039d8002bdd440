"""`hybrid`: the history of a topic from ClickHouse or files, then the topic itself from the end of that history.

Delivery: the slices are those of the phases, and so is what a replay gives. The phase is stored with the positions: it
changes when every sink has the rows of the one before. The offsets at which the topic begins are read before the
largest keys of the tables, and both are stored with the first epoch. So no row is lost between the tables and the
topic. The row at every such offset comes twice, and so do rows that come into the tables between the two queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import Discovery, Kind, register
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.sources import clickhouse, kafka
from streamling.sources.file.source import FileSource
from streamling.sources.hybrid.columns import look_up_columns
from streamling.sources.hybrid.offsets import TopicOffsets
from streamling.sources.hybrid.options import (
    BoundedFiles,
    BoundedSource,
    BoundedTable,
    OffsetTable,
    UnboundedFiles,
    UnboundedSource,
    UnboundedTopic,
)
from streamling.sources.hybrid.phases import Phase
from streamling.sources.hybrid.source import HybridSource
from streamling.sources.kafka import Tombstones, filter_problems, untyped_filter_problems
from streamling.spec.faults import invalid_value, missing_field
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Keyed, SourceOptions
from streamling.spec.settings import Settings
from streamling.spec.yaml import MapNode
from streamling.telemetry.labels import node_labels

__all__ = ["BoundedFiles", "BoundedTable", "HybridOptions", "OffsetTable", "UnboundedFiles", "UnboundedTopic"]

# An aggregate over a table with a row per partition and insert.
_OFFSETS_SECONDS = 60.0


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
    def table(self) -> str | None:
        """The first table, for the labels of metrics."""
        tables = (phase.table_name for phase in self.bounded_sources if isinstance(phase, BoundedTable))
        return next(tables, None)

    @property
    def topic(self) -> str | None:
        """For the labels of metrics."""
        return self.unbounded_source.topic if isinstance(self.unbounded_source, UnboundedTopic) else None

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


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    return look_up_columns(node, _options(node), settings, seconds)


def _build(node: NodeSpec, settings: Settings) -> HybridSource:
    options = _options(node)
    bounded = [_bounded(node, phase, number, settings) for number, phase in enumerate(options.bounded_sources)]
    return HybridSource(
        node=node.ref,
        name=node.name,
        bounded=bounded,
        unbounded=None if settings.job_mode else _unbounded(node, options, len(bounded), settings),
        snapshot=_snapshot(options, settings),
        grouped=bool(settings.kafka_source.consumer_group_id),
    )


def _options(node: NodeSpec) -> HybridOptions:
    if not isinstance(node.options, HybridOptions):
        raise TypeError(node.options)
    return node.options


def _bounded(node: NodeSpec, phase: BoundedTable | BoundedFiles, number: int, settings: Settings) -> Phase:
    cursor = node.ref if number == 0 else f"{node.ref}_bounded_{number}"
    if isinstance(phase, BoundedTable):
        path = ("bounded_sources", number)
        table = clickhouse.make_source(node, phase, settings, *path, cursor=cursor)
        return Phase(number, table, f"clickhouse_source:{cursor}:v1")
    return Phase(number, _files(node, phase.path, phase.format, None, cursor), f"{cursor}:bounded_progress")


def _unbounded(node: NodeSpec, options: HybridOptions, number: int, settings: Settings) -> Phase:
    unbounded = options.unbounded_source
    if isinstance(unbounded, UnboundedFiles):
        poll_s = unbounded.poll_interval.total_seconds()
        files = _files(node, unbounded.path, unbounded.format, poll_s, node.ref, frozenset(unbounded.schema_ or ()))
        return Phase(number, files, f"{node.ref}:watermark")
    inner = replace(node, options=_topic_options(options, unbounded), tree=_subtree(node))
    labels = {**node_labels(node), "id": f"{node.name}_unbounded"}
    return Phase(number, kafka.make_source(inner, settings, labels), f"{node.ref}:{unbounded.topic}:")


def _files(
    node: NodeSpec,
    path: str,
    format_: str,
    poll_s: float | None,
    cursor: str,
    declared: frozenset[str] | None = None,
) -> FileSource:
    """`declared` None: no type is inferred from the files."""
    return FileSource(
        node=node.ref,
        name=node.name,
        path=path,
        format_=format_,
        poll_s=poll_s,
        parallelism=None,
        declared=declared,
        cursor=cursor,
    )


def _topic_options(options: HybridOptions, topic: UnboundedTopic) -> kafka.KafkaSourceOptions:
    """The options of a kafka source that reads the topic. They are checked already."""
    shared = {name: getattr(topic, name) for name in (*kafka.ReadsTopic.model_fields, "topic", "filter")}
    return kafka.KafkaSourceOptions.model_construct(
        **shared,
        starting_offsets=topic.start_at,
        primary_key=options.primary_key,
        telemetry=options.telemetry,
        on_error=options.on_error,
        dead_letter=options.dead_letter,
    )


def _subtree(node: NodeSpec) -> MapNode:
    tree = node.tree.get("unbounded_source")
    return tree if isinstance(tree, MapNode) else node.tree


def _snapshot(options: HybridOptions, settings: Settings) -> Callable[[], Mapping[str, int]]:
    if not isinstance(options.unbounded_source, UnboundedTopic):
        return dict
    offsets = TopicOffsets(options.unbounded_source, options.offset_table, settings)
    return lambda: offsets.read(_OFFSETS_SECONDS) or {}


register(Kind(Role.SOURCE, "hybrid", HybridOptions, _build, probe=_probe))
