"""One schema for all phases: the columns of the unbounded phase, which every bounded one must have."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamling.clients.clickhouse import ClickHouse
from streamling.clients.clickhouse_errors import ServerRefused
from streamling.connector import Discovery
from streamling.errors import (
    INVALID_VALUE,
    OFFSETS_UNKNOWN,
    SCHEMA_UNUSABLE,
    Caution,
    InvalidPipeline,
    StreamlingError,
    TransientError,
    UserError,
)
from streamling.formats.clickhouse_casts import cast_to
from streamling.formats.clickhouse_syntax import quote_name
from streamling.formats.clickhouse_types import column_type
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.plan.types import Field as Column
from streamling.sources.clickhouse import note_table
from streamling.sources.clickhouse.columns import ClickHouseTable, look_up_table
from streamling.sources.file import InfersColumns, leaves_not_in_text, probe_files
from streamling.sources.hybrid.offsets import TopicOffsets
from streamling.sources.hybrid.options import BoundedFiles, BoundedTable, UnboundedTopic
from streamling.sources.kafka import topic_columns
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    from streamling.sources.hybrid import HybridOptions

Path = tuple[str | int, ...]
# Time for a table if a slow schema registry has used up the rest.
_LEAST_SECONDS = 1.0
_JSON = ("json", "ndjson", "jsonl")


def look_up_columns(node: NodeSpec, options: HybridOptions, settings: Settings, seconds: float) -> Discovery:
    """The columns of the unbounded phase; those that a table may have NULL in are nullable."""
    deadline = time.monotonic() + seconds
    discovery = _unbounded_columns(node, options, settings, seconds)
    problems: list[StreamlingError] = []
    nulls: set[str] = set()
    for number, phase in enumerate(options.bounded_sources):
        left = max(deadline - time.monotonic(), _LEAST_SECONDS)
        path: Path = ("bounded_sources", number)
        try:
            if isinstance(phase, BoundedTable):
                nulls.update(_check_table(node, phase, discovery.schema, settings, left, path))
            else:
                _check_files(node, phase, discovery.schema, path)
        except TransientError:
            raise  # the other tables are on the same server
        except InvalidPipeline as error:
            problems.extend(error.problems)
        except StreamlingError as error:
            problems.append(error)
    if problems:
        raise InvalidPipeline(problems)
    cautions = tuple(_check_offsets(node, options, settings, max(deadline - time.monotonic(), _LEAST_SECONDS)))
    # The key is never taken from the schema: tables and topic together may have another one.
    nulls -= set(options.primary_key or ())
    columns = (replace(f, nullable=f.nullable or f.name in nulls) for f in discovery.schema)
    return replace(
        discovery,
        schema=Schema(tuple(columns)),
        primary_key=options.primary_key or (),
        cautions=(*discovery.cautions, *cautions),
    )


def _unbounded_columns(node: NodeSpec, options: HybridOptions, settings: Settings, seconds: float) -> Discovery:
    unbounded = options.unbounded_source
    if isinstance(unbounded, UnboundedTopic):
        return topic_columns(node, unbounded.topic, unbounded, options.primary_key, settings, seconds)
    return probe_files(node, unbounded, "unbounded_source")


# Tables


def _check_table(
    node: NodeSpec, phase: BoundedTable, columns: Schema, settings: Settings, seconds: float, path: Path
) -> list[str]:
    """A table must have all columns. Their types may differ: the server casts the values. Returns the columns with
    NULL."""
    table = look_up_table(node, phase.table_name, settings, seconds, *path, "table_name")
    if missing := table.missing(columns.names):
        message = f"table '{table.name}' lacks columns of the topic: [{', '.join(missing)}]"
        hint = f"columns of the table: {', '.join(table.types)}"
        raise node.error(SCHEMA_UNUSABLE, message, *path, "table_name", hint=hint)
    payload = [f for f in columns if f.name != OPERATION_COLUMN]
    _check_casts(node, table, payload, settings, seconds, (*path, "table_name"))
    note_table(table, settings)
    return [f.name for f in payload if _has_nulls(f, table.types[f.name])]


def _check_casts(
    node: NodeSpec, table: ClickHouseTable, columns: Sequence[Column], settings: Settings, seconds: float, path: Path
) -> None:
    """Raises InvalidPipeline with all columns that cannot be cast."""
    problems: list[UserError] = []
    casts: dict[str, str] = {}
    for column in columns:
        type_ = table.types[column.name]
        try:
            expression = cast_to(column, type_).sql
        except UserError as error:
            problems.append(node.error(error.condition, f"table '{table.name}': {error.message}", *path))
            continue
        if column.type != _known_type(column.name, type_):
            casts[column.name] = expression
    if casts and not problems:
        problems += _refused_casts(node, table, {c.name: c for c in columns}, casts, settings, seconds, path)
    if problems:
        raise InvalidPipeline(problems)


def _refused_casts(
    node: NodeSpec,
    table: ClickHouseTable,
    columns: dict[str, Column],
    casts: dict[str, str],
    settings: Settings,
    seconds: float,
    path: Path,
) -> Iterator[UserError]:
    """Asks the server which casts it cannot do; if it can do all of them, with one question."""
    place = f"{quote_name(table.database)}.{quote_name(table.table)}"

    def is_refused(server: ClickHouse, names: Sequence[str]) -> str | None:
        try:
            server.rows(f"DESCRIBE (SELECT {', '.join(casts[name] for name in names)} FROM {place})")
        except ServerRefused as error:
            return error.message
        return None

    with ClickHouse(
        settings.clickhouse_source, application_id=settings.application_id, timeout=seconds, condition=SCHEMA_UNUSABLE
    ) as server:
        if is_refused(server, list(casts)) is None:
            return
        for name in casts:
            if (reason := is_refused(server, [name])) is not None:
                type_, target = table.types[name], columns[name].type
                message = f"table '{table.name}': the column '{name}' is {type_}, which cannot be cast to {target}"
                yield node.error(SCHEMA_UNUSABLE, f"{message}: {reason}", *path)


def _known_type(name: str, type_: str) -> object:
    try:
        return column_type(type_, name)[0]
    except UserError:
        return None


def _has_nulls(column: Column, type_: str) -> bool:
    try:
        return column_type(type_, column.name)[1]
    except UserError:
        return type_.startswith("Nullable(")


# Files


def _check_files(node: NodeSpec, phase: BoundedFiles, columns: Schema, path: Path) -> None:
    """Files must have all columns; in JSON, one that may be null may be missing."""
    text = phase.format not in ("parquet", "avro")
    for column in columns:
        if text and (leaf := next(leaves_not_in_text(column.type), None)) is not None:
            message = f"the column '{column.name}' is {leaf}, which {phase.format} files cannot contain"
            raise node.error(INVALID_VALUE, message, *path, "format")
    found = probe_files(node, InfersColumns(path=phase.path, format=phase.format), *path).schema
    optional = phase.format in _JSON
    if missing := [f.name for f in columns if f.name not in found and not (optional and f.nullable)]:
        message = f"the files of '{phase.path}' lack columns of the unbounded source: [{', '.join(missing)}]"
        hint = f"columns of the files: {', '.join(found.names[:-1])}"
        raise node.error(SCHEMA_UNUSABLE, message, *path, "path", hint=hint)


# Offsets


def _check_offsets(node: NodeSpec, options: HybridOptions, settings: Settings, seconds: float) -> Iterator[Caution]:
    """A table that the pipeline names must be usable; the default one may be missing."""
    topic = options.unbounded_source
    if settings.job_mode or not isinstance(topic, UnboundedTopic):
        return
    offsets = TopicOffsets(topic, options.offset_table, settings)
    try:
        found = offsets.read(seconds)
    except ServerRefused as error:
        message = f"the offset table '{offsets.table.table_name}' cannot be read: {error.message}"
        raise node.error(SCHEMA_UNUSABLE, message, "offset_table", hint=error.hint) from error
    if found is None:
        message = (
            f"there is no table '{offsets.table.table_name}' with the offsets of topic '{topic.topic}': after the "
            f"bounded phases the topic is read from '{topic.start_at}' on"
        )
        yield node.caution(OFFSETS_UNKNOWN, message, "unbounded_source", hint="name the table in 'offset_table'")
