"""`clickhouse`: a table, read once, in ranges of its sorting key."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from streamling.connector import Discovery, Kind, register
from streamling.sources.clickhouse.columns import look_up_table, source_columns
from streamling.spec.faults import invalid_value
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import ColumnNames, Keyed, Options, SourceOptions
from streamling.spec.settings import Settings

_WHOLE = re.compile(r"[-+]?[0-9]+")


class ReadsTable(Options):
    """Mix-in: which rows and columns of a table are read."""

    table_name: str = Field(min_length=1, description="Table, or `database.table`.")
    columns: ColumnNames = Field(default=None, description="Columns to read, separated by commas; by default all.")
    filter: str | None = Field(
        default=None, min_length=1, description="Condition in ClickHouse SQL; other rows are not read."
    )
    start_at: str | None = Field(
        default=None,
        description="Smallest value to read of the first sorting-key column, as text; in a list with commas only the "
        "first item counts.",
    )

    @field_validator("start_at")
    @classmethod
    def _check_start(cls, start: str | None) -> str | None:
        # The first column of the sorting key is always a whole number.
        if start is not None and not _WHOLE.fullmatch(start.split(",")[0].strip()):
            raise invalid_value(f"is '{start}'; it must begin with a whole number")
        return start


class ClickHouseSourceOptions(ReadsTable, Keyed, SourceOptions):
    """Reads the rows that a table has when the source starts, and ends at the largest key. Without `primary_key` the
    primary key of the rows is the table's sorting key."""

    identity_labels = ("table",)

    @property
    def carries_changes(self) -> bool:
        return False


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = node.options
    if not isinstance(options, ClickHouseSourceOptions):
        raise TypeError(options)
    table = look_up_table(node, options.table_name, settings, seconds, "table_name")
    return Discovery(source_columns(node, table, options.columns), options.primary_key or table.primary_key)


register(Kind(Role.SOURCE, "clickhouse", ClickHouseSourceOptions, probe=_probe))
