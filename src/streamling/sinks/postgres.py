"""`postgres`: rows in a table, kept up to date by key."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from streamling.errors import INVALID_VALUE
from streamling.plan.contract import Finding, Key
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.plugin import Kind, register
from streamling.spec.duration import Duration
from streamling.spec.options import Deduplicating, Options, SingleStream, SinkOptions
from streamling.spec.pipeline import NodeSpec, Role


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


class PostgresWriting(Options):
    """Mix-in: how rows reach Postgres."""

    own_connection: ClassVar[bool] = True

    batch_size: int | None = Field(
        default=None, ge=1, description="Rows of one statement; by default `postgres_sink.batch_size`, which is 100."
    )
    batch_flush_interval: Duration | None = Field(
        default=None,
        description="Longest wait of a partial batch; by default `postgres_sink.batch_flush_interval`, which is `1s`.",
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

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        written = [name for name in columns.names if name != OPERATION_COLUMN]
        for column in self.update_where:
            if column not in written:
                message = f"'update_where' names the column '{column}', which the table does not get"
                hint = f"columns: {', '.join(written)}"
                yield node.error(INVALID_VALUE, message, "update_where", column, hint=hint)
        if self.update_where and (why := self._never_updates(written, key)):
            yield node.caution(INVALID_VALUE, f"'update_where' has no effect: {why}", "update_where")

    def _never_updates(self, written: list[str], key: Key) -> str | None:
        if self.on_conflict is OnConflict.NOTHING:
            return "with 'on_conflict: nothing' no row is updated"
        if not key:
            return "without a primary key no row is updated"
        return "all columns belong to the key" if set(written) <= set(key) else None


register(Kind(Role.SINK, "postgres", PostgresOptions))
