"""`clickhouse`: a table, read once, in ranges of its sorting key.

Delivery: a slice is a list of consecutive ranges of the sorting key. The key after the last range is stored with every
epoch. A replay of a slice gives the same rows in the same order, as long as nobody changes the rows of its ranges: rows
that are inserted there, updated or deleted while the table is read may be read in their old or in their new state.
"""

from __future__ import annotations

from pydantic import Field

from streamling.connector import Discovery, Kind, register
from streamling.errors import INVALID_VALUE
from streamling.sources.clickhouse.columns import ClickHouseTable, look_up_table, source_columns
from streamling.sources.clickhouse.keys import WrongKeyValue
from streamling.sources.clickhouse.source import ClickHouseSource
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import ColumnNames, Keyed, Options, SourceOptions
from streamling.spec.settings import Settings

# Time to look up a table that no probe of this process has looked up, as at the replay of dead letters.
_LOOK_UP_SECONDS = 30.0
_tables: dict[tuple[str, str, str, str], ClickHouseTable] = {}
"""What probes of this process have found, by server, user, database and table."""


class ReadsTable(Options):
    """Mix-in: which rows and columns of a table are read."""

    table_name: str = Field(min_length=1, description="Table, or `database.table`.")
    columns: ColumnNames = Field(default=None, description="Columns to read, separated by commas; by default all.")
    filter: str | None = Field(
        default=None, min_length=1, description="Condition in ClickHouse SQL; other rows are not read."
    )
    start_at: str | None = Field(
        default=None,
        description="Smallest value to read of the first sorting-key column, as text, times in UTC; in a list with "
        "commas only the first item counts.",
    )


class ClickHouseSourceOptions(ReadsTable, Keyed, SourceOptions):
    """Reads the rows that a table has when the source starts, and ends at the largest key. Without `primary_key` the
    primary key of the rows is the table's sorting key."""

    identity_labels = ("table",)

    @property
    def table(self) -> str:
        """For the labels of metrics."""
        return self.table_name

    @property
    def carries_changes(self) -> bool:
        return False


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = _options(node)
    table = look_up_table(node, options.table_name, settings, seconds, "table_name")
    columns = source_columns(node, table, options.columns)
    if options.start_at is not None:
        try:
            table.keys[0].parse(options.start_at.split(",")[0].strip())
        except WrongKeyValue as error:
            raise node.error(INVALID_VALUE, f"'start_at' {error}", "start_at") from error
    note_table(table, settings)
    return Discovery(columns, options.primary_key or table.primary_key)


def _build(node: NodeSpec, settings: Settings) -> ClickHouseSource:
    return make_source(node, _options(node), settings)


def make_source(
    node: NodeSpec, options: ReadsTable, settings: Settings, *path: str | int, cursor: str | None = None
) -> ClickHouseSource:
    """`path`: where the options are in the node. `cursor`: the name in the state key, by default that of the node."""

    def look_up() -> ClickHouseTable:
        known = _tables.get(_place(options.table_name, settings))
        return known or look_up_table(node, options.table_name, settings, _LOOK_UP_SECONDS, *path, "table_name")

    return ClickHouseSource(
        node=node.ref,
        name=node.name,
        look_up=look_up,
        filter_=options.filter,
        start_at=options.start_at,
        connection=settings.clickhouse_source,
        application_id=settings.application_id,
        query_timeout=settings.runtime.query_timeout_sec,
        cursor=cursor,
    )


def note_table(table: ClickHouseTable, settings: Settings) -> None:
    """Remember what a probe has found, for the sources of this process."""
    _tables[_place(table.name, settings)] = table


def _options(node: NodeSpec) -> ClickHouseSourceOptions:
    if not isinstance(node.options, ClickHouseSourceOptions):
        raise TypeError(node.options)
    return node.options


def _place(table: str, settings: Settings) -> tuple[str, str, str, str]:
    connection = settings.clickhouse_source
    return connection.url, connection.user, connection.database, table


register(Kind(Role.SOURCE, "clickhouse", ClickHouseSourceOptions, _build, probe=_probe))
