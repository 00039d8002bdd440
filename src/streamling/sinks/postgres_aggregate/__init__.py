"""`postgres_aggregate`: sums, counts and the like, kept up to date in Postgres.

Delivery: exactly once. An epoch is one transaction, which also moves the sink's positions in the table
`_streamling_ledger` of the same schema: an epoch that is recorded there is not counted again, and a process that was
taken over finds the positions moved and writes nothing. Rows of sources that cannot be replayed count at least once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from pydantic import Field, ValidationInfo, field_validator

from streamling.clients.postgres import PostgresTable
from streamling.connector import Kind, register
from streamling.errors import INVALID_VALUE, KEY_REQUIRED
from streamling.plan.contract import Finding, Key
from streamling.plan.types import Field as Column
from streamling.plan.types import Schema
from streamling.sinks.postgres import PostgresWriting, batching, sink_connection
from streamling.sinks.postgres.checks import check_name_lengths, check_written_columns
from streamling.sinks.postgres_aggregate.names import EPOCH_COLUMN, Names, group_column, value_column
from streamling.sinks.postgres_aggregate.result import Result, is_floating, result_of, rounds
from streamling.sinks.postgres_aggregate.sink import PostgresAggregateSink, WriteOptions
from streamling.sinks.postgres_aggregate.types import PostgresType
from streamling.spec.faults import invalid_value
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Deduplicating, Options, SingleStream, SinkOptions
from streamling.spec.settings import Settings


class AggregateFunction(StrEnum):
    SUM = "sum"
    COUNT = "count"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


_OF_NUMBERS = (AggregateFunction.SUM, AggregateFunction.AVG)
_NUMBER = re.compile(r"u?int[0-9]+|float[0-9]+|decimal(_arb)?")
# Postgres has no smallest value of these.
_UNORDERED = ("boolean", "binary", "struct", "list", "map")
_UNORDERED_TYPES = ("boolean", "bool", "bytea", "json", "jsonb")


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
    deduplicate: bool = Field(
        default=True,
        description="Rows of a key that follow each other in a batch with the same operation count once, as the last.",
    )
    retract: bool = Field(
        default=False,
        description="Keep the last values of each key, so that updates and deletes take back what was counted before.",
    )
    retract_table: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="Table of the last values, with `retract`; created if missing. By default `<agg_table>_rows`.",
    )

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

    @field_validator("retract_table")
    @classmethod
    def _check_retract_table(cls, table: str | None, info: ValidationInfo) -> str | None:
        if table is not None and info.data.get("retract") is False:
            raise invalid_value("is only allowed with 'retract: true'")
        name = table or f"{info.data.get('agg_table')}_rows"
        if info.data.get("retract") and name in (info.data.get("landing_table"), info.data.get("agg_table")):
            raise invalid_value(f"is '{name}', which must not be the same table as 'landing_table' or 'agg_table'")
        return table

    @property
    def table(self) -> str:
        """For the labels of metrics."""
        return self.agg_table

    @property
    def names(self) -> Names:
        def table(name: str) -> PostgresTable:
            return PostgresTable(self.schema_, name)

        values = table(self.retract_table or f"{self.agg_table}_rows") if self.retract else None
        return Names(table(self.landing_table), table(self.agg_table), values)

    def result(self, columns: Schema) -> Result:
        """The columns of the aggregate table, for these columns of the input."""
        return result_of(self.group_by, self.aggregate, columns)

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        yield from check_written_columns(node, columns, key)
        if EPOCH_COLUMN in columns:
            message = f"the column '{EPOCH_COLUMN}' of the input has the name of a column that the sink adds"
            yield node.error(INVALID_VALUE, message, hint="leave it out in a sql transform")
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
            elif isinstance(entry, Aggregate):
                yield from self._check_aggregate(node, name, entry, column)
            elif (entry.type or "").strip().lower() == "json":
                message = f"'group_by.{name}' has the type 'json', whose values Postgres does not compare"
                yield node.error(INVALID_VALUE, message, field, name, "type", hint="use 'jsonb' or 'text'")
        yield from self._check_lengths(node)

    def _check_aggregate(self, node: NodeSpec, name: str, entry: Aggregate, column: Column) -> Iterator[Finding]:
        described = f"'aggregate.{name}' is the {entry.fn.value} of the column '{column.name}', which is {column.type}"
        if entry.fn not in _OF_NUMBERS:
            type_ = (entry.type or "").strip().lower()
            if column.type.kind in _UNORDERED or type_ in _UNORDERED_TYPES:
                message = described if column.type.kind in _UNORDERED else f"{described}, with the type '{entry.type}'"
                hint = "only numbers, texts, dates and times have a smallest and a largest value"
                yield node.error(INVALID_VALUE, message, "aggregate", name, "fn", hint=hint)
            return
        if not _NUMBER.fullmatch(column.type.kind):
            yield node.error(INVALID_VALUE, described, "aggregate", name, "fn", hint="only numbers can be added up")
            return
        if entry.type is not None and rounds(column, entry.type, exact=self.retract):
            message = f"{described}; in '{entry.type}' the sum is rounded"
            report = node.error if self.retract else node.caution
            hint = "use 'numeric', or a type with at least as many digits after the decimal point"
            yield report(INVALID_VALUE, message, "aggregate", name, "type", hint=hint)
        elif self.retract and is_floating(column, entry.type):
            message = f"{described}: after an update or a delete all rows of the group are added up again"
            yield node.caution(INVALID_VALUE, message, "aggregate", name, hint="set 'type: numeric', which is exact")

    def _check_lengths(self, node: NodeSpec) -> Iterator[Finding]:
        for field, names in (
            ("group_by", self.group_by),
            ("aggregate", [column for name, entry in self.aggregate.items() for column in entry.columns(name)]),
        ):
            yield from check_name_lengths(node, names, field, hint="choose a shorter name")
        if self.retract:
            inputs = [e.from_ or n for n, e in self.aggregate.items() if e.fn is not AggregateFunction.COUNT]
            kept = [*map(group_column, self.group_by), *map(value_column, inputs)]
            hint = "'retract' keeps values under such names; choose a shorter name"
            yield from check_name_lengths(node, dict.fromkeys(kept), "retract", hint=hint)


def _build(node: NodeSpec, settings: Settings) -> PostgresAggregateSink:
    options = node.options
    if not isinstance(options, PostgresAggregateOptions):
        raise TypeError(options)
    batch, batch_rows = batching(options, settings.postgres_sink)
    write_options = WriteOptions(options, options.names, batch, batch_rows, settings.checkpoint_interval_sec)
    return PostgresAggregateSink(node, sink_connection(node, settings), write_options)


register(Kind(Role.SINK, "postgres_aggregate", PostgresAggregateOptions, _build))
