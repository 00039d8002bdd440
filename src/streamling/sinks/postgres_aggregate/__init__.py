"""`postgres_aggregate`: sums, counts and the like, kept up to date in Postgres."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import Kind, register
from streamling.errors import INVALID_VALUE, KEY_REQUIRED
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Schema
from streamling.sinks.postgres import PostgresWriting
from streamling.sinks.postgres_aggregate.types import PostgresType
from streamling.spec.faults import invalid_value
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Deduplicating, Options, SingleStream, SinkOptions


class AggregateFunction(StrEnum):
    SUM = "sum"
    COUNT = "count"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


_OF_NUMBERS = (AggregateFunction.SUM, AggregateFunction.AVG)
_NUMBER = re.compile(r"u?int[0-9]+|float[0-9]+|decimal(_arb)?")


class GroupColumn(Options):
    """A column that rows are grouped by."""

    from_: str | None = Field(
        default=None, alias="from", min_length=1, description="Column of the input; by default of the same name."
    )
    type: PostgresType | None = Field(default=None, description="Postgres type; by default that of the input column.")


class Aggregate(GroupColumn):
    """A value computed per group."""

    fn: AggregateFunction = Field(description="What is computed; `count` needs no column.")

    def columns(self, name: str) -> tuple[str, ...]:
        """Its columns in the table: an average is kept as a sum and a count."""
        return (f"{name}_sum", f"{name}_count") if self.fn is AggregateFunction.AVG else (name,)


class PostgresAggregateOptions(PostgresWriting, Deduplicating, SingleStream, SinkOptions):
    """Rows are inserted into one table; a trigger keeps a second one up to date, with one row per group."""

    identity_labels = ("table",)
    key_required = KEY_REQUIRED

    schema_: str = Field(alias="schema", min_length=1, description="Postgres schema, created if missing.")
    landing_table: str = Field(min_length=1, description="Table that rows are inserted into; created if missing.")
    agg_table: str = Field(min_length=1, description="Table of the results; created if missing.")
    group_by: dict[str, GroupColumn] = Field(
        default_factory=dict, description="Columns of the result that identify a group; without any there is one row."
    )
    aggregate: dict[str, Aggregate] = Field(min_length=1, description="Columns of the result that are computed.")

    @field_validator("agg_table")
    @classmethod
    def _check_tables(cls, table: str, info: ValidationInfo) -> str:
        if table == info.data.get("landing_table"):
            raise invalid_value("must not be the same table as 'landing_table'")
        return table

    @field_validator("aggregate")
    @classmethod
    def _check_names(cls, aggregate: dict[str, Aggregate], info: ValidationInfo) -> dict[str, Aggregate]:
        # Without groups the table has an extra column, `key`, for its only row.
        names = set(info.data.get("group_by") or ("key",))
        for name, entry in aggregate.items():
            for column in entry.columns(name):
                if column in names:
                    raise invalid_value(f"gives a second column '{column}' to the table", field=name)
                names.add(column)
        return aggregate

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        wanted = [
            *(("group_by", name, entry) for name, entry in self.group_by.items()),
            *(("aggregate", name, e) for name, e in self.aggregate.items() if e.fn is not AggregateFunction.COUNT),
        ]
        for field, name, entry in wanted:
            input_name = entry.from_ or name
            column = columns.get(input_name)
            if column is None:
                message = f"'{field}.{name}' reads the column '{input_name}', which is not in the input"
                hint = f"columns: {', '.join(columns.names)}"
                yield node.error(INVALID_VALUE, message, field, name, "from", hint=hint)
            elif isinstance(entry, Aggregate) and entry.fn in _OF_NUMBERS and not _NUMBER.fullmatch(column.type.kind):
                function = entry.fn.value
                message = f"'{field}.{name}' is the {function} of the column '{input_name}', which is {column.type}"
                yield node.error(INVALID_VALUE, message, field, name, "fn", hint="only numbers can be added up")


register(Kind(Role.SINK, "postgres_aggregate", PostgresAggregateOptions))
