"""`hybrid`: the history of a topic from ClickHouse or files, then the topic itself from the end of that history.

Delivery: the slices are those of the phases, and so is what a replay gives. The phase is stored with the positions: it
changes when every sink has the rows of the one before. The offsets at which the topic begins are read before the
largest keys of the tables, and both are stored with the first epoch. So no row is lost between the tables and the
topic. The row at every such offset comes twice, and so do rows that come into the tables between the two queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from streamling.connector import Kind, register
from streamling.sources import clickhouse, kafka
from streamling.sources.file.source import FileSource
from streamling.sources.hybrid.columns import probe
from streamling.sources.hybrid.offsets import TopicOffsets
from streamling.sources.hybrid.options import (
    BoundedFiles,
    BoundedTable,
    HybridOptions,
    OffsetTable,
    UnboundedFiles,
    UnboundedTopic,
)
from streamling.sources.hybrid.phases import Phase
from streamling.sources.hybrid.source import HybridSource
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.settings import Settings
from streamling.spec.yaml import MapNode
from streamling.telemetry.labels import node_labels

__all__ = ["BoundedFiles", "BoundedTable", "HybridOptions", "OffsetTable", "UnboundedFiles", "UnboundedTopic"]

# An aggregate over a table with a row per partition and insert.
_OFFSETS_SECONDS = 60.0


def _build(node: NodeSpec, settings: Settings) -> HybridSource:
    options = node.options
    if not isinstance(options, HybridOptions):
        raise TypeError(options)
    bounded = [_bounded(node, phase, number, settings) for number, phase in enumerate(options.bounded_sources)]
    return HybridSource(
        node=node.ref,
        name=node.name,
        bounded=bounded,
        unbounded=None if settings.job_mode else _unbounded(node, options, len(bounded), settings),
        snapshot=_snapshot(options, settings),
        grouped=bool(settings.kafka_source.consumer_group_id),
    )


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
    labels = {**node_labels(inner), "id": f"{node.name}_unbounded"}
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
    offsets = TopicOffsets(options, settings)
    return lambda: offsets.read(_OFFSETS_SECONDS) or {}


register(Kind(Role.SOURCE, "hybrid", HybridOptions, _build, probe=probe))
