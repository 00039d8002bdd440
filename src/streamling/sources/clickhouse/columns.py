"""The columns, sorting key and engine of a ClickHouse table, from the server."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from streamling.clients.clickhouse import ClickHouse
from streamling.errors import INVALID_VALUE, SCHEMA_UNUSABLE, InvalidPipeline, StreamlingError, UserError
from streamling.formats.clickhouse_syntax import call_arguments, plain_name, plain_text, quote_name, split_list
from streamling.formats.clickhouse_types import column_type
from streamling.plan.types import OPERATION_COLUMN, OPERATION_FIELD, Field, Schema
from streamling.retry import look_up
from streamling.sources.clickhouse.keys import RANGED_HINT, KeyColumn
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings import Settings

log = logging.getLogger(__name__)

_REPLACING = "ReplacingMergeTree"
_STORAGE = """
SELECT sorting_key, engine_full, getSetting('readonly')
FROM system.tables WHERE database = {database:String} AND name = {table:String}
"""
_REQUESTS = 3
# The profile of a user who may read, and change no setting.
_READ_ONLY = 1


@dataclass(frozen=True, slots=True)
class ClickHouseTable:
    """A table as the server describes it.

    name          as in the pipeline
    database, table   its parts
    types         ClickHouse's type of every column that can be read, in order
    sorting_key   columns, and expressions where the key is computed
    keys          the same, with their types
    version       the column whose highest value wins among the rows of one key; None if all rows count
    tombstone     the column that marks the winning row as deleted; None if there is none
    settable      whether the user may change settings of the server in a query
    """

    name: str
    database: str
    table: str
    types: dict[str, str]
    sorting_key: tuple[str, ...]
    keys: tuple[KeyColumn, ...]
    version: str | None = None
    tombstone: str | None = None
    settable: bool = True

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The sorting key, if it consists of columns only."""
        return self.sorting_key if all(part in self.types for part in self.sorting_key) else ()

    def missing(self, columns: Iterable[str]) -> list[str]:
        """The columns that the table does not have. `_gs_op` is never missing: the source adds it."""
        return [name for name in columns if name not in self.types and name != OPERATION_COLUMN]


def look_up_table(node: NodeSpec, name: str, settings: Settings, seconds: float, *path: str | int) -> ClickHouseTable:
    """A table that can be read in ranges; its name is the option at `path` of the node.

    Transient errors are retried within `seconds`. Raises StreamlingError.
    """
    connection = settings.clickhouse_source
    database, dot, rest = name.partition(".")
    place = (database, rest) if dot else (connection.database, name)

    def describe(left: float) -> ClickHouseTable:
        with ClickHouse(connection, application_id=settings.application_id, timeout=left / _REQUESTS) as server:
            return _describe(server, name, *place)

    try:
        table = look_up(describe, f"looking up the table '{name}'", seconds)
    except StreamlingError as error:
        message = (
            f"{node.described()}: failed to create ClickHouse source: failed to look up table '{name}': {error.message}"
        )
        hint = error.hint or "the server address is clickhouse_source.url, the user clickhouse_source.user"
        raise type(error)(error.condition, message, node=node.name, where=node.locate(*path), hint=hint) from error
    if problem := _range_problem(table):
        raise node.error(SCHEMA_UNUSABLE, f"table '{name}' cannot be read: {problem}", *path, hint=RANGED_HINT)
    return table


def source_columns(node: NodeSpec, table: ClickHouseTable, names: tuple[str, ...] | None) -> Schema:
    """The columns that a source reads, by default all, and the operation. Raises UserError or InvalidPipeline."""
    if missing := table.missing(names or ()):
        message = f"table '{table.name}' has no columns [{', '.join(missing)}]"
        raise node.error(INVALID_VALUE, message, "columns", hint=f"columns: {', '.join(table.types)}")
    fields: list[Field] = []
    problems: list[UserError] = []
    for name in names or table.types:
        if name == OPERATION_COLUMN:
            continue
        try:
            fields.append(Field(name, *column_type(table.types[name], name)))
        except UserError as error:
            hint = "list the columns to read in 'columns', without this one"
            problems.append(node.error(error.condition, f"table '{table.name}': {error.message}", "columns", hint=hint))
    if problems:
        raise InvalidPipeline(problems)
    return Schema((*fields, OPERATION_FIELD))


def _describe(server: ClickHouse, name: str, database: str, table: str) -> ClickHouseTable:
    # DESCRIBE comes first: if the table cannot be read, the server answers with the reason.
    place = f"{quote_name(database)}.{quote_name(table)}"
    columns = server.rows(f"DESCRIBE TABLE {place}")
    storage = server.rows(_STORAGE, database=database, table=table)
    sorting_key, engine, read_only = storage[0] if storage else ("", "", _READ_ONLY)
    # An ephemeral column exists only in inserts.
    types = {column: type_ for column, type_, default, *_ in columns if default != "EPHEMERAL"}
    parts = _sorting_key(sorting_key)
    keys = _key_columns(server, place, parts, types)
    version, tombstone = _replacing(engine, name)
    settable = int(read_only) != _READ_ONLY
    return ClickHouseTable(name, database, table, types, parts, keys, version, tombstone, settable)


def _key_columns(
    server: ClickHouse, place: str, parts: tuple[str, ...], types: dict[str, str]
) -> tuple[KeyColumn, ...]:
    computed = {part: "" for part in parts if part not in types}
    if computed:
        described = server.rows(f"DESCRIBE (SELECT {', '.join(f'({part})' for part in computed)} FROM {place})")
        computed = {part: row[1] for part, row in zip(computed, described, strict=True)}
    return tuple(
        KeyColumn(quote_name(part), types[part]) if part in types else KeyColumn(f"({part})", computed[part])
        for part in parts
    )


def _sorting_key(text: str) -> tuple[str, ...]:
    return tuple(plain_name(part) or part for part in split_list(text))


def _replacing(engine: str, table: str) -> tuple[str | None, str | None]:
    """Version and tombstone of an engine such as `ReplicatedReplacingMergeTree('/path', '{replica}', version)`."""
    if _REPLACING not in engine.partition("(")[0].partition(" ")[0]:
        return None, None
    try:
        arguments = call_arguments(engine)
    except ValueError:
        log.warning("rows of the table '%s' are not deduplicated: its engine cannot be parsed: %s", table, engine)
        return None, None
    # Literals are the path and name of the replica; a version column may follow them, then a tombstone.
    version, tombstone, *_ = *(plain_name(a) for a in arguments if plain_text(a) is None), None, None
    return version, tombstone


def _range_problem(table: ClickHouseTable) -> str | None:
    """Why rows cannot be read in ranges of the first column of the sorting key; None if they can."""
    if not table.sorting_key:
        return "it has no sorting key"
    first = table.sorting_key[0]
    if first not in table.types:
        return f"its sorting key begins with {first}, which is not a column"
    if table.keys[0].is_ranged:
        return None
    return f"its sorting key begins with the column '{first}', which is {table.types[first]}"
