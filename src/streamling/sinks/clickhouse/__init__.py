"""`clickhouse`: rows in a table that keeps the last version of each key.

Delivery: at least once, with the effect of exactly once. An epoch is a series of inserts, and one that was interrupted
is replayed with the same rows in the same inserts. Each of them has a token, made from its place in the sources and its
content, by which the table recognises a repetition and drops it: tables that the sink creates remember 10,000 inserts
(`non_replicated_deduplication_window`). Without such a window rows may be there twice until the table merges them; read
it with `FINAL`. With `append_only_mode: false` an epoch with deletes is written again as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import BatchPolicy, Kind, register
from streamling.errors import INVALID_VALUE, KEY_REQUIRED
from streamling.formats.clickhouse_types import NoClickHouseType, clickhouse_type
from streamling.plan.contract import Finding, Key
from streamling.plan.types import OPERATION_COLUMN, DataType, Schema
from streamling.plan.types import Field as Column
from streamling.sinks.clickhouse.sink import ClickHouseSink, WriteOptions
from streamling.sinks.clickhouse.tables import DELETED, INSERTED, TableName, TableOptions
from streamling.spec.duration import Duration
from streamling.spec.faults import invalid_value
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Deduplicating, RequiredKey, SingleStream, SinkOptions
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import Compression

# Columns of the input that are not written as they are.
_NOT_DATA = (OPERATION_COLUMN, DELETED)
_TIMES = frozenset({"int32", "int64", "uint32", "uint64", "timestamp"})
_NESTED = frozenset({"list", "struct", "map"})


def _is_version(type_: DataType) -> bool:
    return type_.native is not None or (
        type_.kind.startswith(("int", "uint", "date", "timestamp")) and type_.kind != "interval"
    )


class ClickHouseSinkOptions(RequiredKey, Deduplicating, SingleStream, SinkOptions):
    """A missing table is created as a ReplacingMergeTree; an existing one is used as it is, columns matched by name."""

    identity_labels = ("table",)
    keeps_rows_by_key = True
    key_required = KEY_REQUIRED

    table: str = Field(min_length=1, description="Table, or `database.table`; created if missing.")
    batch_size: int | None = Field(
        default=None, ge=1, description="Rows of one insert; by default `clickhouse_sink.batch_size`, which is 100000."
    )
    batch_flush_interval: Duration | None = Field(
        default=None,
        description="Longest wait of a partial batch; by default `clickhouse_sink.batch_flush_interval`, which is "
        "`1s`.",
    )
    append_only_mode: bool = Field(
        default=True, description="Write deletes as rows marked in `is_deleted` instead of deleting."
    )
    version_column_name: str | None = Field(
        default=None,
        min_length=1,
        description="Column whose highest value wins; by default `insert_time`, which the sink adds.",
    )
    schema_override: dict[str, str] | None = Field(
        default=None, description="ClickHouse type of a column in a table that is created, used as written."
    )
    schema_overrides: dict[str, str] | None = Field(
        default=None, description="Another name of `schema_override`; only one of them may be used."
    )
    compression: Compression | None = Field(
        default=None,
        description="How inserts are compressed; case does not matter; by default `clickhouse_sink.compression`.",
    )
    compression_level: int | None = Field(
        default=None, ge=0, le=9, description="Level, for gzip only; by default `clickhouse_sink.compression_level`."
    )

    @field_validator("schema_overrides")
    @classmethod
    def _check_names(cls, overrides: dict[str, str] | None, info: ValidationInfo) -> dict[str, str] | None:
        if overrides is not None and info.data.get("schema_override") is not None:
            raise invalid_value("is another name of 'schema_override'; write one of them")
        return overrides

    @property
    def overrides(self) -> dict[str, str]:
        """The types that the pipeline file sets, by column."""
        return self.schema_override or self.schema_overrides or {}

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        yield from self._check_version(node, columns)
        yield from self._check_override(node, columns)
        yield from self._check_own_columns(node, columns, key)
        for column in columns:
            yield from self._check_type(node, column)

    def _check_version(self, node: NodeSpec, columns: Schema) -> Iterator[Finding]:
        name = self.version_column_name
        if name is None:
            return
        if not self.append_only_mode:
            message = "'version_column_name' has no effect with 'append_only_mode: false'"
            yield node.caution(INVALID_VALUE, message, "version_column_name")
        elif name not in columns or name in _NOT_DATA:
            message = f"the version column '{name}' is not in the input"
            hint = f"columns: {', '.join(columns.names)}"
            yield node.error(INVALID_VALUE, message, "version_column_name", hint=hint)
        elif (type_ := columns.get(name)) is not None and name not in self.overrides and not _is_version(type_.type):
            message = f"the version column '{name}' is {type_.type}"
            hint = "a version is a whole number, a date or a timestamp"
            yield node.error(INVALID_VALUE, message, "version_column_name", hint=hint)

    def _check_own_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        if self.append_only_mode:
            if self.version_column_name is None and INSERTED in columns:
                message = f"the input has a column '{INSERTED}', and the sink adds one of that name"
                hint = f"write 'version_column_name: {INSERTED}', or rename the column in a sql transform"
                yield node.error(INVALID_VALUE, message, hint=hint)
            return
        for name in key:
            if (column := columns.get(name)) is not None and column.type.kind in _NESTED:
                message = f"the key column '{name}' is {column.type}, by which nothing can be deleted"
                yield node.error(INVALID_VALUE, message, hint="choose columns of plain values as the primary key")

    def _check_override(self, node: NodeSpec, columns: Schema) -> Iterator[Finding]:
        field = "schema_overrides" if self.schema_overrides else "schema_override"
        for name, text in self.overrides.items():
            column = columns.get(name)
            if name in _NOT_DATA:
                continue
            if column is None and name != INSERTED:
                message = f"'{field}' names the column '{name}', which is not in the input"
                yield node.caution(INVALID_VALUE, message, field, name)
            elif column is not None and "datetime" in text.casefold() and column.type.kind not in _TIMES:
                message = f"'{field}.{name}' is '{text}', but the column is {column.type}"
                hint = "times can be made from seconds (int32, int64, uint32, uint64) and from timestamps"
                yield node.error(INVALID_VALUE, message, field, name, hint=hint)

    def _check_type(self, node: NodeSpec, column: Column) -> Iterator[Finding]:
        if "string" in self.overrides.get(column.name, "").casefold():
            return
        if column.type.kind == "null" and column.name not in self.overrides:
            message = f"the column '{column.name}' is always null, and no table can have a column of the type Nothing"
            hint = f"cast it, leave it out, or write schema_override: {{{column.name}: Nullable(String)}}"
            yield node.error(INVALID_VALUE, message, hint=hint)
        try:
            clickhouse_type(column.type, nullable=column.nullable)
        except NoClickHouseType as error:
            hint = f"write schema_override: {{{column.name}: String}}, which keeps all digits"
            yield node.error(INVALID_VALUE, f"the column '{column.name}' cannot be written: {error}", hint=hint)


def _build(node: NodeSpec, settings: Settings) -> ClickHouseSink:
    options = node.options
    if not isinstance(options, ClickHouseSinkOptions):
        raise TypeError(options)
    connection = settings.clickhouse_sink
    rows = options.batch_size or connection.batch_size
    interval = options.batch_flush_interval or connection.batch_flush_interval
    level = options.compression_level
    write_options = WriteOptions(
        table=TableOptions(
            name=TableName.parse(options.table, connection.database),
            append_only=options.append_only_mode,
            version=options.version_column_name if options.append_only_mode else None,
            overrides=options.overrides,
        ),
        batch=BatchPolicy(rows, interval.total_seconds()),
        batch_rows=rows,
        deduplicate=options.deduplicate,
        compression=options.compression or connection.compression,
        compression_level=connection.compression_level if level is None else level,
    )
    return ClickHouseSink(node, connection, write_options, settings.application_id)


register(Kind(Role.SINK, "clickhouse", ClickHouseSinkOptions, _build))
