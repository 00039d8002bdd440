"""`lookup`: a reference table that queries join, from a file or from a Postgres query."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from streamling.connector import Discovery, Kind, Lookup, register
from streamling.errors import LOOKUP, PRIMARY_KEY
from streamling.plan.contract import Finding, Key
from streamling.plan.types import OPERATION_COLUMN, DataType, Schema
from streamling.plan.types import Field as Column
from streamling.plan.written_columns import DeclaredColumns
from streamling.spec.duration import Duration, parse_duration
from streamling.spec.faults import invalid_value, missing_field
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import OnError, RequiredKey, TransformOptions
from streamling.spec.settings import Settings
from streamling.transforms.lookup.columns import file_schema_fault, path_fault, query_schema_fault

_FILE_INTERVAL = parse_duration("5s")
_QUERY_INTERVAL = parse_duration("1m")
# Equal values of these types may be different texts, or the other way round.
_NO_KEYS = ("float16", "float32", "float64", "list", "map", "struct", "null", "interval")


class LookupOptions(RequiredKey, TransformOptions):
    """It is not a stream: no node reads it by `from`; queries add its columns to their rows with `JOIN` or
    `LEFT JOIN`. All rows of an epoch see the same version of the table."""

    joined = True
    own_connection = True

    path: str | None = Field(
        default=None, min_length=1, description="File with the rows: local, `s3://`, `s3a://` or `gs://`."
    )
    format: Literal["parquet", "csv", "json", "ndjson", "jsonl"] | None = Field(
        default=None,
        validate_default=True,
        description="Format of the file. The three JSON names mean the same: one object per line.",
    )
    query: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="SELECT in the SQL of Postgres, instead of `path`. It runs on the connection `postgres_sink`, or "
        "on the one under the name of the lookup in `postgres_sink_connections`.",
    )
    schema_: DeclaredColumns | None = Field(
        default=None,
        alias="schema",
        description="With `path`, the types of columns in csv and json files that are not to be inferred. With "
        "`query`, all columns that are read; without it, the database is asked for them at the start.",
    )
    refresh_interval: Duration | None = Field(
        default=None,
        description="Pause before the table is looked at again: a file is read if its size or time has changed, a "
        "query is run. Default: `5s` for a file, `1m` for a query.",
    )

    @field_validator("on_error")
    @classmethod
    def _check_on_error(cls, on_error: OnError) -> OnError:
        if on_error is not OnError.FAIL:
            raise invalid_value("must be 'fail': a lookup with a bad row is not used at all")
        return on_error

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str | None) -> str | None:
        if path is not None and (fault := path_fault(path)) is not None:
            raise invalid_value(fault)
        return path

    @field_validator("format")
    @classmethod
    def _check_format(cls, format_: str | None, info: ValidationInfo) -> str | None:
        if "path" in info.data and (info.data["path"] is None) != (format_ is None):
            raise (
                missing_field("is missing: 'path' needs it")
                if format_ is None
                else invalid_value("is only allowed with 'path'")
            )
        return format_

    @field_validator("query")
    @classmethod
    def _check_query(cls, query: str | None, info: ValidationInfo) -> str | None:
        if "path" in info.data and (info.data["path"] is None) == (query is None):
            raise (
                missing_field("is missing: a lookup needs 'path' or 'query'")
                if query is None
                else invalid_value("is not allowed with 'path': a lookup has one of them")
            )
        return query

    @field_validator("schema_")
    @classmethod
    def _check_schema(cls, columns: dict[str, DataType] | None, info: ValidationInfo) -> dict[str, DataType] | None:
        if OPERATION_COLUMN in (columns or {}):
            raise invalid_value("is not allowed: a lookup has no operations", field=OPERATION_COLUMN)
        for name, type_ in (columns or {}).items():
            is_query = info.data.get("query") is not None
            fault = query_schema_fault(type_) if is_query else file_schema_fault(info.data.get("format"), type_)
            if fault is not None:
                raise invalid_value(fault, field=name)
        return columns

    @field_validator("refresh_interval")
    @classmethod
    def _check_interval(cls, interval: timedelta | None) -> timedelta | None:
        if interval is not None and not interval:
            raise invalid_value("must be longer than 0")
        return interval

    @property
    def fingerprint(self) -> str:
        """The interval does not change rows."""
        return repr(self.model_copy(update={"refresh_interval": None}))

    def output_schema(self, node: NodeSpec) -> Schema | None:
        if self.query is None or self.schema_ is None:
            return None
        return Schema(tuple(Column(name, type_) for name, type_ in self.schema_.items()))

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
        for name in key:
            column = columns.get(name)
            if column is not None and column.type.kind in _NO_KEYS:
                message = f"the key column '{name}' is {column.type}, which cannot be compared exactly"
                hint = f"set the type of '{name}' in 'schema', for instance string"
                yield node.error(PRIMARY_KEY, message, "primary_key", hint=hint)
        if OPERATION_COLUMN in columns:
            message = f"it has a column `{OPERATION_COLUMN}`: a lookup has the rows of now, and no operations"
            yield node.error(LOOKUP, message, hint="leave the column out")


def _probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
    options = _options(node)
    if options.path is not None and options.format is not None:
        from streamling.transforms.lookup.file import look_up_file_columns

        return look_up_file_columns(node, options.path, options.format, options.schema_ or {})
    from streamling.transforms.lookup.postgres import look_up_query_columns

    return look_up_query_columns(node, options.query or "", settings, seconds)


def _build(node: NodeSpec, settings: Settings) -> Lookup:
    options = _options(node)
    if options.path is not None and options.format is not None:
        from streamling.transforms.lookup.file import FileLookup

        interval = options.refresh_interval or _FILE_INTERVAL
        declared = frozenset(options.schema_ or ())
        return FileLookup(node.name, options.path, options.format, declared, interval.total_seconds())
    from streamling.transforms.lookup.postgres import QueryLookup

    interval = options.refresh_interval or _QUERY_INTERVAL
    return QueryLookup(node, options.query or "", settings, interval.total_seconds())


def _options(node: NodeSpec) -> LookupOptions:
    if not isinstance(node.options, LookupOptions):
        raise TypeError(node.options)
    return node.options


register(
    Kind(
        Role.TRANSFORM,
        "lookup",
        LookupOptions,
        _build,
        probe=_probe,
        samples={"path": "data/customers.csv", "format": "csv"},
    )
)
