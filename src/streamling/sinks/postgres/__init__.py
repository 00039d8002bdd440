"""`postgres`: rows in a table, kept up to date by key.

Delivery: exactly once. An epoch is one transaction, which also moves the sink's positions in the table
`_streamling_ledger` of the same schema: an epoch that is recorded there is not written again, and a process that was
taken over finds the positions moved and writes nothing. Rows of sources that cannot be replayed arrive at least once.

The rows of an epoch are cut in five ways, each for one reason:

batch     `batch_size` rows, the window of `deduplicate`                      `rounds`
round     for order: no round writes two rows of one key                      `rounds`
portion   for time: what one statement can write before its timeout           `portions`
chunk     for memory: what is encoded at once for COPY                        `statements`
half      to search: halved until the row that the server rejects is found    `search`
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from streamling.clients.postgres import ConnectionOptions, PostgresTable
from streamling.connector import BatchPolicy, Kind, register
from streamling.errors import INVALID_VALUE
from streamling.plan.contract import Finding, Key
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sinks.postgres.checks import check_written_columns
from streamling.sinks.postgres.sink import PostgresSink, WriteOptions
from streamling.spec.duration import Duration
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Deduplicating, Options, SingleStream, SinkOptions
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import PostgresConnection, PostgresSinkSettings


class OnConflict(StrEnum):
    UPDATE = "update"
    NOTHING = "nothing"


class Comparison(StrEnum):
    EQUAL = "="
    GREATER = ">"
    AT_LEAST = ">="
    LESS = "<"
    AT_MOST = "<="
    DIFFERENT = "!="
    UNEQUAL = "<>"


class SchemaEvolution(StrEnum):
    NONE = "none"
    ADDITIVE = "additive"


class PostgresWriting(Options):
    """Mix-in: when rows are written to Postgres."""

    own_connection: ClassVar[bool] = True

    batch_size: int | None = Field(
        default=None, ge=1, description="Rows to wait for; by default `postgres_sink.batch_size`, which is 100."
    )
    batch_flush_interval: Duration | None = Field(
        default=None,
        description="Longest wait for them; by default `postgres_sink.batch_flush_interval`, which is `1s`. If "
        "neither is set, here or in the settings, rows are written without waiting.",
    )


class PostgresOptions(PostgresWriting, Deduplicating, SingleStream, SinkOptions):
    """Inserts and updates become upserts, deletes delete. Without a key, rows are only added. A missing table is
    created from the columns of the input; an existing one is used as it is."""

    identity_labels = ("table",)
    keeps_rows_by_key = True

    schema_: str = Field(alias="schema", min_length=1, description="Postgres schema, created if missing.")
    table: str = Field(min_length=1, description="Table, created if missing.")
    on_conflict: OnConflict = Field(
        default=OnConflict.UPDATE, description="When a row with this key already exists: replace it, or keep it."
    )
    update_where: dict[str, Comparison] = Field(
        default_factory=dict,
        description="Replace a row only if, for each column named here, the new value compares like this to the old.",
    )

    schema_evolution: SchemaEvolution = Field(
        default=SchemaEvolution.NONE,
        description="`additive`: columns of the input that the table does not have are added at the start.",
    )

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        names = [name for name in columns.names if name != OPERATION_COLUMN]
        for name in self.update_where:
            if name not in names:
                message = f"'update_where' names the column '{name}', which is not written to the table"
                hint = f"columns: {', '.join(names)}"
                yield node.error(INVALID_VALUE, message, "update_where", name, hint=hint)
        yield from check_written_columns(node, columns, key)
        if self.update_where and (why := self._never_updates(names, key)):
            yield node.caution(INVALID_VALUE, f"'update_where' has no effect: {why}", "update_where")

    def _never_updates(self, names: list[str], key: Key) -> str | None:
        if self.on_conflict is OnConflict.NOTHING:
            return "with 'on_conflict: nothing' no row is updated"
        if not key:
            return "without a primary key no row is updated"
        return "all columns belong to the key" if set(names) <= set(key) else None


def connection_options(connection: PostgresConnection, settings: PostgresSinkSettings) -> ConnectionOptions:
    """A connection with the timeouts of all Postgres sinks."""
    return ConnectionOptions(
        host=connection.host,
        port=connection.port,
        database=connection.db,
        user=connection.user,
        password=connection.pass_,
        sslmode=connection.sslmode.value if connection.sslmode is not None else None,
        statement_s=settings.statement_timeout_secs,
        connect_s=settings.pool_acquire_timeout_secs,
        idle_s=settings.pool_idle_timeout_secs,
        lifetime_s=settings.pool_max_lifetime_secs,
    )


def sink_connection(node: NodeSpec, settings: Settings) -> ConnectionOptions:
    """The connection of a sink: its own, or that of all Postgres sinks."""
    return connection_options(settings.postgres_connection(node.name), settings.postgres_sink)


def batching(options: PostgresWriting, settings: PostgresSinkSettings) -> tuple[BatchPolicy | None, int]:
    """What a sink waits for, and the rows of a batch, in which rows are deduplicated."""
    rows = options.batch_size or settings.batch_size
    interval = options.batch_flush_interval or settings.batch_flush_interval
    # If neither is set, nothing waits: rows are written as they arrive, many or few.
    waits = {"batch_size", "batch_flush_interval"} & (options.model_fields_set | settings.model_fields_set)
    return (BatchPolicy(rows, interval.total_seconds()) if waits else None), rows


def _build(node: NodeSpec, settings: Settings) -> PostgresSink:
    options = node.options
    if not isinstance(options, PostgresOptions):
        raise TypeError(options)
    batch, batch_rows = batching(options, settings.postgres_sink)
    write_options = WriteOptions(
        table=PostgresTable(options.schema_, options.table),
        on_conflict=options.on_conflict.value,
        conditions={column: comparison.value for column, comparison in options.update_where.items()},
        deduplicate=options.deduplicate,
        adds_columns=options.schema_evolution is SchemaEvolution.ADDITIVE,
        batch=batch,
        batch_rows=batch_rows,
    )
    return PostgresSink(node, sink_connection(node, settings), write_options)


register(Kind(Role.SINK, "postgres", PostgresOptions, _build))
