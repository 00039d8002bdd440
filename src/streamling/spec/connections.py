"""Connections that the settings define for single nodes, under the names of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from streamling.errors import NAME_CLASH, UNKNOWN_SETTING, Caution, UserError
from streamling.spec.faults import did_you_mean
from streamling.spec.pipeline import NodeSpec, PipelineSpec
from streamling.spec.pipeline.options import PostgresLetters
from streamling.spec.settings import Settings
from streamling.spec.settings.names import connection_name


def shared_connections(pipeline: PipelineSpec) -> Iterator[UserError]:
    """Sinks and lookups whose names differ but have the same key in the settings."""
    first: dict[str, NodeSpec] = {}
    for node in filter(_has_own_connection, pipeline.nodes):
        other = first.setdefault(name := connection_name(node.name), node)
        if other.ref != node.ref:
            message = (
                f"it would share the connection '{name}' with {other.described()} in line {other.where.line}: "
                "settings compare only the letters and digits of a name"
            )
            yield node.error(NAME_CLASH, message, hint="rename one of them")


def unused_connections(pipeline: PipelineSpec, settings: Settings) -> Iterator[Caution]:
    """Connections under names that no node has."""
    names = [connection_name(n.name) for n in pipeline.nodes if _has_own_connection(n) or _stores_dead_letters(n)]
    for name in settings.postgres_sink_connections:
        if name not in names:
            message = f"'postgres_sink_connections.{name}' does not match any Postgres sink or lookup of the pipeline"
            yield Caution(UNKNOWN_SETTING, message, hint=did_you_mean(name, names))


def _has_own_connection(node: NodeSpec) -> bool:
    return node.model is not None and node.model.own_connection


def _stores_dead_letters(node: NodeSpec) -> bool:
    return isinstance(node.options.dead_letter, PostgresLetters)
