"""`postgres`: rows in a table, kept up to date by key.

Delivery: exactly once. An epoch is one transaction, which begins with a record of the sink's positions in the table
`_streamling_ledger` of the same schema: an epoch that is there already is not written again, and a process that was
overtaken finds the record moved, and writes nothing. Rows of sources that cannot be read twice arrive at least once.

The rows of an epoch are cut in five ways, each for one reason:

batch     `batch_size` rows, the window of `deduplicate`                      `rounds`
round     for order: no round writes two rows of one key                      `rounds`
portion   for time: what one statement can write before its timeout           `portions`
chunk     for memory: what is encoded at once for COPY                        `statements`
half      to search: halved until the row that the server rejects is found    `sink`
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from streamling.clients.postgres import PostgresServer, PostgresTable
from streamling.connector import BatchPolicy, Kind, register
from streamling.errors import INVALID_VALUE
from streamling.plan.contract import Finding, Key
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sinks.postgres.columns import MOST_SCALE, NESTED
from streamling.sinks.postgres.sink import PostgresSink, WriteOptions
from streamling.spec.duration import Duration
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Deduplicating, Options, SingleStream, SinkOptions
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import PostgresConnection
from streamling.spec.settings.blocks import PostgresSink as PostgresSinkSettings

_MOST_NAME_BYTES = 63


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
    """Mix-in: how rows reach Postgres."""

    own_connection: ClassVar[bool] = True

    batch_size: int | None = Field(
        default=None, ge=1, description="Rows to wait for; by default `postgres_sink.batch_size`, which is 100."
    )
    batch_flush_interval: Duration | None = Field(
        default=None,
        description="Longest wait for them; by default `postgres_sink.batch_flush_interval`, which is `1s`. Where "
        "neither is set, here or in the settings, nothing waits: rows are written as they come.",
    )


class PostgresOptions(PostgresWriting, Deduplicating, SingleStream, SinkOptions):
    """Inserts and updates become upserts, deletes delete. Without a key, rows are only added. A missing table is
    made from the columns of the input; one that is there is used as it is."""

    identity_labels = ("table",)

    schema_: str = Field(alias="schema", min_length=1, description="Postgres schema, made when missing.")
    table: str = Field(min_length=1, description="Table, made when missing.")
    on_conflict: OnConflict = Field(
        default=OnConflict.UPDATE, description="What a row of a key that is there does: replace it, or nothing."
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
        written = [name for name in columns.names if name != OPERATION_COLUMN]
        for column in self.update_where:
            if column not in written:
                message = f"'update_where' names the column '{column}', which the table does not get"
                hint = f"columns: {', '.join(written)}"
                yield node.error(INVALID_VALUE, message, "update_where", column, hint=hint)
        yield from self._check_names(node, written)
        for field in columns:
            if (field.type.scale or 0) > MOST_SCALE:
                message = f"column '{field.name}' is {field.type}; Postgres keeps {MOST_SCALE} digits behind the point"
                yield node.error(
                    INVALID_VALUE, message, hint="cast it in a sql transform, to text if nothing may be lost"
                )
        for name in key:
            if (found := columns.get(name)) is not None and found.type.kind in NESTED:
                message = f"the key column '{name}' is {found.type}, which cannot be a key"
                yield node.error(INVALID_VALUE, message, hint="choose columns of plain values as the primary key")
        if self.update_where and (why := self._never_updates(written, key)):
            yield node.caution(INVALID_VALUE, f"'update_where' has no effect: {why}", "update_where")

    @staticmethod
    def _check_names(node: NodeSpec, written: list[str]) -> Iterator[Finding]:
        for name in written:
            if (length := len(name.encode())) > _MOST_NAME_BYTES:
                message = f"the name of column '{name}' has {length} bytes; Postgres keeps {_MOST_NAME_BYTES}"
                yield node.error(INVALID_VALUE, message, hint="give it a shorter name in a sql transform")

    def _never_updates(self, written: list[str], key: Key) -> str | None:
        if self.on_conflict is OnConflict.NOTHING:
            return "with 'on_conflict: nothing' no row is updated"
        if not key:
            return "without a primary key no row is updated"
        return "all columns belong to the key" if set(written) <= set(key) else None


def postgres_server(connection: PostgresConnection, settings: PostgresSinkSettings) -> PostgresServer:
    """A connection with the times that hold for all Postgres sinks."""
    return PostgresServer(
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


def _build(node: NodeSpec, settings: Settings) -> PostgresSink:
    options = node.options
    if not isinstance(options, PostgresOptions):
        raise TypeError(options)
    common = settings.postgres_sink
    rows = options.batch_size or common.batch_size
    interval = options.batch_flush_interval or common.batch_flush_interval
    # Who asks for nothing is not kept waiting: rows are written as they come, many or few.
    waits = {"batch_size", "batch_flush_interval"} & (options.model_fields_set | common.model_fields_set)
    writing = WriteOptions(
        table=PostgresTable(options.schema_, options.table),
        on_conflict=options.on_conflict.value,
        conditions={column: comparison.value for column, comparison in options.update_where.items()},
        deduplicate=options.deduplicate,
        adds_columns=options.schema_evolution is SchemaEvolution.ADDITIVE,
        batch=BatchPolicy(rows, interval.total_seconds()) if waits else None,
        batch_rows=rows,
    )
    return PostgresSink(node, postgres_server(settings.postgres_connection(node.name), common), writing)


register(Kind(Role.SINK, "postgres", PostgresOptions, _build, sets_aside=True))
