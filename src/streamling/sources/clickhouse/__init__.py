"""`clickhouse`: a table, read once in ranges of its sorting key."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from streamling.connector import Discovery, Kind, register
from streamling.sources.clickhouse.columns import chosen_columns, look_up_table
from streamling.spec.faults import invalid_value
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import ColumnNames, Keyed, Options, SourceOptions
from streamling.spec.settings import Settings

_WHOLE = re.compile(r"[-+]?[0-9]+")


class TableReading(Options):
    """Mix-in: which rows and columns of a table are read."""

    table_name: str = Field(min_length=1, description="Table, or `database.table`.")
    columns: ColumnNames = Field(default=None, description="Columns to read, separated by commas; by default all.")
    filter: str | None = Field(
        default=None, min_length=1, description="Condition in the SQL of ClickHouse; other rows are not read."
    )
    start_at: str | None = Field(
        default=None,
        description="First value of the first sorting-key column to read, as text; of a list with commas only the "
        "first part counts.",
    )

    @field_validator("start_at")
    @classmethod
    def _check_start(cls, start: str | None) -> str | None:
        # The first column of the sorting key is always a whole number.
        if start is not None and not _WHOLE.fullmatch(start.split(",")[0].strip()):
            raise invalid_value(f"is '{start}'; it must begin with a whole number")
        return start


class ClickHouseSourceOptions(TableReading, Keyed, SourceOptions):
    """The rows a table has when the source starts. It ends at the largest key; without `primary_key` the key of
    the rows is the table's sorting key."""

    identity_labels = ("table",)


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = node.options
    if not isinstance(options, ClickHouseSourceOptions):
        raise TypeError(options)
    table = look_up_table(node, options.table_name, settings, seconds, "table_name")
    return Discovery(chosen_columns(node, table, options.columns), options.primary_key or table.primary_key)


register(Kind(Role.SOURCE, "clickhouse", ClickHouseSourceOptions, probe=_probe))
