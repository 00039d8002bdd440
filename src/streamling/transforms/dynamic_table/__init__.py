"""`dynamic_table`: a set of values that queries look up while the pipeline runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Self

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import Kind, register
from streamling.connector.table import TableBackend
from streamling.errors import INVALID_VALUE
from streamling.plan.contract import Finding, Key
from streamling.plan.types import DataType, Schema
from streamling.plan.written_columns import DeclaredType, declared_fields
from streamling.spec.faults import invalid_value
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import TransformOptions
from streamling.spec.settings import Settings

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Backend(StrEnum):
    POSTGRES = "Postgres"
    IN_MEMORY = "InMemory"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Case and punctuation do not matter: `in_memory`, `In-Memory`."""
        letters = re.sub(r"[\W_]", "", value).casefold() if isinstance(value, str) else ""
        return next((member for member in cls if member.value.casefold() == letters), None)


class Populate(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class DynamicTableOptions(TransformOptions):
    """It is filled from outside, by a query of the pipeline, or both. It is not a stream: no node reads it by `from`;
    queries look values up by its name in the pipeline with `dynamic_table_check` and `dynamic_table_get`."""

    namespace = "dynamic tables"
    reads_by_query = True

    backend_type: Backend = Field(description="Where the values are kept; case and punctuation do not matter.")
    backend_entity_name: str = Field(min_length=1, description="Name of the table in the backend.")
    sql: str | None = Field(default=None, min_length=1, description="Query that fills the table: one column of text.")
    schema_: str | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        description="Postgres schema; by default `dynamic_table_backend.postgres.dt_schema_name`.",
    )
    column: str = Field(default="value", min_length=1, description="Column that holds the values.")
    time_column: str | None = Field(
        default=None, min_length=1, description="Column with the time at which a value was added; a cache needs it."
    )
    columns: dict[str, DeclaredType] = Field(
        default_factory=dict,
        description="Other columns of the table in Postgres and their types, whose values `dynamic_table_get` fetches.",
    )
    cache: bool | None = Field(
        default=None,
        description="Keep the values in memory; by default `dynamic_table_backend.postgres.cache_enabled`.",
    )
    cache_refresh_debounce_ms: int | None = Field(
        default=None,
        ge=0,
        description="Minimum time between two queries for new values, 0 = for every batch; by default "
        "`dynamic_table_backend.postgres.cache_refresh_debounce_ms`.",
    )
    populate: Populate = Field(
        default=Populate.BEFORE,
        description="Whether the values of a row are added before the row itself is checked, or after; only "
        "with `sql`.",
    )
    same_input: bool = Field(
        default=True,
        description="`false` lets queries over another input use the table; only with `sql`.",
    )

    @field_validator("backend_entity_name", "schema_", "column", "time_column")
    @classmethod
    def _check_identifier(cls, name: str | None, info: ValidationInfo) -> str | None:
        postgres = info.data.get("backend_type") is Backend.POSTGRES
        if postgres and name is not None and not _IDENTIFIER.fullmatch(name):
            raise invalid_value(
                f"is '{name}'; in Postgres it must be letters, digits and '_', not beginning with a digit"
            )
        return name

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: dict[str, DataType], info: ValidationInfo) -> dict[str, DataType]:
        from streamling.transforms.dynamic_table.postgres import fitting_types

        if columns and info.data.get("backend_type") is not Backend.POSTGRES:
            raise invalid_value("is only allowed with 'backend_type: Postgres'")
        for name, type_ in columns.items():
            if not _IDENTIFIER.fullmatch(name):
                raise invalid_value("is not a name of letters, digits and '_'", field=name)
            try:
                fitting_types(type_)
            except KeyError:
                raise invalid_value(f"is {type_}, which cannot be fetched from Postgres", field=name) from None
        return columns

    @field_validator("populate", "same_input")
    @classmethod
    def _check_filled(cls, value: Populate | bool, info: ValidationInfo) -> Populate | bool:
        if "sql" in info.data and info.data["sql"] is None:
            raise invalid_value("is only allowed with 'sql'")
        return value

    @property
    def filled_first(self) -> bool:
        return self.populate is Populate.BEFORE

    @property
    def fetched_columns(self) -> Schema:
        return Schema(declared_fields(self.columns))

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        """Checks no columns, only the settings of the cache."""
        if self.backend_type is not Backend.POSTGRES:
            return
        if self.cache and self.time_column is None:
            message = "'cache' has no effect without 'time_column': every value is looked up in the database"
            yield node.caution(INVALID_VALUE, message, "cache", hint="set time_column")
        elif self.cache_refresh_debounce_ms and self.cache is not False:
            message = f"new values may be seen up to {self.cache_refresh_debounce_ms} ms late"
            yield node.caution(INVALID_VALUE, message, "cache_refresh_debounce_ms")


def _build(node: NodeSpec, settings: Settings) -> TableBackend:
    from streamling.transforms.dynamic_table.memory import InMemoryTable

    options = node.options
    if not isinstance(options, DynamicTableOptions):
        raise TypeError(options)
    return InMemoryTable() if options.backend_type is Backend.IN_MEMORY else _postgres_table(node, options, settings)


def _postgres_table(node: NodeSpec, options: DynamicTableOptions, settings: Settings) -> TableBackend:
    from streamling.clients.postgres import ConnectionOptions, PostgresTable
    from streamling.transforms.dynamic_table.cache import CachedTable
    from streamling.transforms.dynamic_table.postgres import STATEMENT_S, PostgresBackend, TableOptions

    block = settings.dynamic_table_backend.postgres
    server = ConnectionOptions(
        block.host, block.port, block.db, block.user, block.password, block.sslmode.value, statement_s=STATEMENT_S
    )
    switched_on = block.cache_enabled if options.cache is None else options.cache
    cached = switched_on and options.time_column is not None
    backend = PostgresBackend(
        TableOptions(
            name=node.name,
            server=server,
            table=PostgresTable(options.schema_ or block.dt_schema_name, options.backend_entity_name),
            column=options.column,
            time_column=options.time_column,
            columns=options.fetched_columns,
            stamped=cached,
            pieces=settings.dynamic_table_backend.max_batch_size,
        )
    )
    if not cached or options.time_column is None:
        return backend
    milliseconds = options.cache_refresh_debounce_ms
    refresh_ms = block.cache_refresh_debounce_ms if milliseconds is None else milliseconds
    return CachedTable(backend, options.time_column, refresh_ms / 1000)


register(Kind(Role.TRANSFORM, "dynamic_table", DynamicTableOptions, _build))
