"""Columns on their way to Postgres: the type in a new table, how values are staged, what an existing table must have.

Values are staged as Arrow holds them. What Postgres has to read from text (numbers over 38 digits, JSON) is cast after
that, to the type of the column. A cast must not lose anything: an explicit cast truncates and rounds silently,
an assignment to a column is an error instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.plan.types import DataType, Field
from streamling.sinks.postgres.keys import Fold

if TYPE_CHECKING:
    import pyarrow as pa

_DDL = {
    "boolean": "BOOLEAN",
    "int8": "SMALLINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "uint8": "INTEGER",
    "uint16": "INTEGER",
    "int64": "BIGINT",
    "uint32": "BIGINT",
    "uint64": "NUMERIC(20,0)",
    "float16": "REAL",
    "float32": "REAL",
    "float64": "DOUBLE PRECISION",
    "string": "TEXT",
    "binary": "BYTEA",
    "date32": "DATE",
    "date64": "DATE",
    "timestamp": "TIMESTAMP",
    "time32": "TIME",
    "time64": "TIME",
    "struct": "JSONB",
    "list": "JSONB",
    "map": "JSONB",
}
_STAGING_TYPES = {
    "boolean": "bool",
    "int8": "int2",
    "int16": "int2",
    "uint8": "int2",
    "int32": "int4",
    "uint16": "int4",
    "int64": "int8",
    "uint32": "int8",
    "uint64": "numeric",
    "float16": "float4",
    "float32": "float4",
    "float64": "float8",
    "binary": "bytea",
    "date32": "date",
    "date64": "date",
    "timestamp": "timestamp",
    "time32": "time",
    "time64": "time",
}
NESTED = ("struct", "list", "map")
"""Written as JSON; they cannot be keys."""
# The largest p of NUMERIC(p,s). Without parameters there is no limit, except for digits after the decimal point.
_MAX_DECLARED_DIGITS = 1000
MAX_SCALE = 16_383


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the input. `staging_type` is the type its values are staged in, `ddl` that of a new table.

    For the column of an existing table: `cast_type` is its type, if an explicit cast to it is needed, `max_length` its
    length in characters, if limited, and `fold` which values are the same key, if not only equal ones.
    """

    name: str
    type: DataType
    ddl: str
    staging_type: str
    nullable: bool
    cast_type: str | None = None
    max_length: int | None = None
    fold: Fold | None = None

    def value_sql(self, value: str) -> str:
        """The SQL expression that turns a staged value into one of the column."""
        if self.max_length is not None:
            # Excess spaces at the end would be cut off silently; with a '.' after them the value is too long instead.
            value = f"CASE WHEN length({value}) > {self.max_length} THEN {value} || '.' ELSE {value} END"
        if self.staging_type == "text" and self.ddl != "TEXT":
            value += f"::{self.ddl}"
        return f"{value}::{self.cast_type}" if self.cast_type else value

    @property
    def has_counterpart(self) -> bool:
        """Whether Postgres has such a type; values of other types are written as text."""
        return self.type.kind in _DDL or self.type.kind in ("decimal", "decimal_arb", "null")


def table_column(field: Field) -> TableColumn:
    type_ = field.type
    if type_.kind in ("decimal", "decimal_arb"):
        staging_type = "text" if type_.wide else "numeric"
        declared = (type_.precision or 0) <= _MAX_DECLARED_DIGITS
        ddl = f"NUMERIC({type_.precision},{type_.scale})" if declared else "NUMERIC"
        return TableColumn(field.name, type_, ddl, staging_type, field.nullable)
    ddl, staging_type = _DDL.get(type_.kind, "TEXT"), _STAGING_TYPES.get(type_.kind, "text")
    return TableColumn(field.name, type_, ddl, staging_type, field.nullable)


def stage_values(batch: pa.Table, columns: tuple[TableColumn, ...]) -> pa.RecordBatch:
    """The values of these columns, cast to their staging types."""
    import pyarrow as pa

    arrays = [_stage_array(batch.column(column.name).combine_chunks(), column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _stage_array(array: pa.Array, column: TableColumn) -> pa.Array:
    import pyarrow as pa

    from streamling.formats.json import json_values

    if column.type.kind in NESTED:
        return pa.array(json_values(array, column.type), pa.string())
    if pa.types.is_int8(array.type):
        return array.cast(pa.int16())
    if pa.types.is_null(array.type):
        return array.cast(pa.string())
    if column.staging_type == "text" and not pa.types.is_string(array.type):
        return pa.array([None if v is None else str(v) for v in array.to_pylist()], pa.string())
    return array


# What an existing table must have

_TEXTS = ("text", "varchar")
# Postgres reads these from text, and rejects a text that it cannot read.
_READ_FROM_TEXT = ("uuid", "json", "jsonb", "inet", "cidr", "macaddr", "xml", "citext", "bpchar")
# Types of these for which different texts are equal.
_FOLDS = {"uuid": Fold.UUID, "citext": Fold.CASE, "bpchar": Fold.SPACES}
_WIDE_ENOUGH = {
    "BOOLEAN": ("bool",),
    "SMALLINT": ("int2", "int4", "int8", "float4", "float8", "numeric"),
    "INTEGER": ("int4", "int8", "float8", "numeric"),
    "BIGINT": ("int8", "numeric"),
    "REAL": ("float4", "float8"),
    "DOUBLE PRECISION": ("float8",),
    "NUMERIC": ("numeric",),
    "TEXT": (),
    "BYTEA": ("bytea",),
    "DATE": ("date", "timestamp", "timestamptz"),
    "TIMESTAMP": ("timestamp", "timestamptz"),
    "TIME": ("time",),
    "JSONB": ("jsonb", "json"),
}
_DIGITS = {"int8": 3, "uint8": 3, "int16": 5, "uint16": 5, "int32": 10, "uint32": 10, "int64": 19, "uint64": 20}
_FRACTION = {"s": 0, "ms": 3}
_NUMBER_KINDS = ("SMALLINT", "INTEGER", "BIGINT", "NUMERIC", "REAL", "DOUBLE PRECISION")
_NUMBERS = ("int2", "int4", "int8", "float4", "float8", "numeric")


@dataclass(frozen=True, slots=True)
class ExistingColumn:
    """A column of an existing table, as the catalog has it."""

    name: str
    base: str
    """Name of the type without parameters, `int4`; for a domain, that of its base type."""
    type_name: str
    """The type as users write it, `integer`."""
    modifier: int
    enumeration: bool
    required: bool
    has_default: bool
    generated: bool
    deterministic: bool
    """Whether only identical texts are equal for its collation."""


def misfit(column: TableColumn, existing: ExistingColumn) -> str | None:
    """Why some values of the input do not fit into the existing column; None if all fit."""
    if existing.generated:
        return f'column "{existing.name}" is generated by the database, and the input has values for it'
    kind = column.ddl.partition("(")[0]
    if existing.base in _TEXTS or existing.base in _WIDE_ENOUGH["SMALLINT" if column.staging_type == "int2" else kind]:
        return _too_narrow(column, existing)
    if kind == "TEXT" and (existing.base in _READ_FROM_TEXT or existing.enumeration):
        return None
    if kind in _NUMBER_KINDS and existing.base in _NUMBERS:
        return (
            f'column "{existing.name}" is {existing.type_name}, and the input is {column.type}, which is wider: '
            f"values may be out of range for type {existing.type_name}, or be rounded"
        )
    input_type = f"{column.type}, written as {column.ddl}"
    return f'column "{existing.name}" is of type {existing.type_name} but the input is {input_type}'


def _too_narrow(column: TableColumn, existing: ExistingColumn) -> str | None:
    if existing.base == "numeric" and existing.modifier >= 0:
        precision, scale = ((existing.modifier - 4) >> 16) & 0xFFFF, (existing.modifier - 4) & 0x7FF
        whole = _DIGITS.get(column.type.kind) or (column.type.precision or 0) - (column.type.scale or 0)
        if precision - scale < whole or scale < (column.type.scale or 0):
            return (
                f'column "{existing.name}" is {existing.type_name}, and the input is {column.type}, which is wider: '
                "a value may be a numeric field overflow, or be rounded"
            )
    if existing.base in ("timestamp", "timestamptz", "time") and 0 <= existing.modifier < _FRACTION.get(
        column.type.unit or "", 6
    ):
        return f'column "{existing.name}" is {existing.type_name}, and would round times of the input, {column.type}'
    return None


def key_misfit(column: TableColumn, existing: ExistingColumn) -> str | None:
    """Why a column that fits cannot be a key; None if it can."""
    if column.type.kind in NESTED:
        return f'column "{existing.name}" is {column.type}, which cannot be a key'
    if not existing.deterministic:
        return f'column "{existing.name}" has a collation for which different texts are equal, and cannot be a key'
    if column.ddl == "TEXT" and existing.base in _READ_FROM_TEXT and existing.base not in _FOLDS:
        return (
            f'column "{existing.name}" is {existing.type_name}, for which different texts are equal, '
            "and cannot be a key; a text column can"
        )
    return None


def with_cast(column: TableColumn, existing: ExistingColumn) -> TableColumn:
    """The column with the cast and the limits of the existing table."""
    if column.ddl != "TEXT":
        floating = column.ddl in ("REAL", "DOUBLE PRECISION")
        if existing.base in _TEXTS:  # so that rows and comparisons have the same text
            return replace(column, cast_type="text", fold=Fold.NAN if floating else None)
        return replace(column, fold=Fold.FLOAT if floating else None)
    if existing.base == "bpchar":  # without its length: a cast would truncate
        return replace(column, cast_type="bpchar", fold=Fold.SPACES)
    if existing.base in _READ_FROM_TEXT or existing.enumeration:
        cast_type = existing.type_name.replace("%", "%%")  # in a statement `%s` stands for values
        return replace(column, cast_type=cast_type, fold=_FOLDS.get(existing.base))
    if existing.base == "varchar" and existing.modifier >= 0:
        return replace(column, max_length=existing.modifier - 4)
    return column
