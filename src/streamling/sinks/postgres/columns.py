"""Columns on their way to Postgres: the type a new table gets, how values are staged, and what a given table must have.

Values are staged as Arrow carries them. What Postgres has to read from text (numbers beyond 38 digits, JSON) is cast
behind it, to the type of the column. A cast must not lose anything: Postgres cuts and rounds in silence where a cast
is written, and says so where a value is only put into a column.
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
_STAGED = {
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
"""Written as JSON; no keys."""
# What NUMERIC(p,s) can say. Without parameters it holds any number of digits, behind the point so many.
_DECLARED_DIGITS = 1000
MOST_SCALE = 16_383


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the input. `staged` is the type its values arrive in, `ddl` the one a new table gets.

    Of the column in the table that is there: `target` is its type, where a cast to it has to be written, `limit` how
    many characters it has, if not any number, and `fold` what it takes for one key, if it is more than what is equal.
    """

    name: str
    type: DataType
    ddl: str
    staged: str
    nullable: bool
    target: str | None = None
    limit: int | None = None
    fold: Fold | None = None

    def value_sql(self, value: str) -> str:
        """The staged value as it goes into the column."""
        if self.limit is not None:
            # Blanks at the end that are too many would be cut off in silence; before a point they are not at the end.
            value = f"CASE WHEN length({value}) > {self.limit} THEN {value} || '.' ELSE {value} END"
        if self.staged == "text" and self.ddl != "TEXT":
            value += f"::{self.ddl}"
        return f"{value}::{self.target}" if self.target else value

    @property
    def known(self) -> bool:
        """Whether the type has a counterpart; values of others are written as text."""
        return self.type.kind in _DDL or self.type.kind in ("decimal", "decimal_arb", "null")


def table_column(field: Field) -> TableColumn:
    type_ = field.type
    if type_.kind in ("decimal", "decimal_arb"):
        staged = "text" if type_.wide else "numeric"
        declared = (type_.precision or 0) <= _DECLARED_DIGITS
        ddl = f"NUMERIC({type_.precision},{type_.scale})" if declared else "NUMERIC"
        return TableColumn(field.name, type_, ddl, staged, field.nullable)
    ddl, staged = _DDL.get(type_.kind, "TEXT"), _STAGED.get(type_.kind, "text")
    return TableColumn(field.name, type_, ddl, staged, field.nullable)


def staged(batch: pa.Table, columns: tuple[TableColumn, ...]) -> pa.RecordBatch:
    """The values of these columns as they are staged, in order."""
    import pyarrow as pa

    arrays = [_staged(batch.column(column.name).combine_chunks(), column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _staged(array: pa.Array, column: TableColumn) -> pa.Array:
    import pyarrow as pa

    from streamling.formats.json import json_values

    if column.type.kind in NESTED:
        return pa.array(json_values(array, column.type), pa.string())
    if pa.types.is_int8(array.type):
        return array.cast(pa.int16())
    if pa.types.is_null(array.type):
        return array.cast(pa.string())
    if column.staged == "text" and not pa.types.is_string(array.type):
        return pa.array([None if v is None else str(v) for v in array.to_pylist()], pa.string())
    return array


# What a given table must have

_TEXTS = ("text", "varchar")
# Postgres reads these from text, and says so if it cannot.
_READ_FROM_TEXT = ("uuid", "json", "jsonb", "inet", "cidr", "macaddr", "xml", "citext", "bpchar")
# Of these, what they take for one value.
_FOLDS = {"uuid": Fold.UUID, "citext": Fold.CASE, "bpchar": Fold.BLANKS}
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
    """A column of a table that is there, as the catalogue has it."""

    name: str
    base: str
    """Name of the type without parameters, `int4`; of a domain, that of the type it is made of."""
    shown: str
    """The type as people write it, `integer`."""
    modifier: int
    enumeration: bool
    required: bool
    has_default: bool
    generated: bool
    deterministic: bool
    """Whether only equal texts are equal for its collation."""


def misfit(column: TableColumn, given: ExistingColumn) -> str | None:
    """Why values of the input cannot all go into the column that is there; None if they can."""
    if given.generated:
        return f'column "{given.name}" is generated by the database, and the input has values for it'
    kind = column.ddl.partition("(")[0]
    if given.base in _TEXTS or given.base in _WIDE_ENOUGH["SMALLINT" if column.staged == "int2" else kind]:
        return _too_narrow(column, given)
    if kind == "TEXT" and (given.base in _READ_FROM_TEXT or given.enumeration):
        return None
    if kind in _NUMBER_KINDS and given.base in _NUMBERS:
        return (
            f'column "{given.name}" is {given.shown}, and the input is {column.type}, which is wider: values may be '
            f"out of range for type {given.shown}, or be rounded"
        )
    return f'column "{given.name}" is of type {given.shown} but the input is {column.type}, written as {column.ddl}'


def _too_narrow(column: TableColumn, given: ExistingColumn) -> str | None:
    if given.base == "numeric" and given.modifier >= 0:
        precision, scale = ((given.modifier - 4) >> 16) & 0xFFFF, (given.modifier - 4) & 0x7FF
        whole = _DIGITS.get(column.type.kind) or (column.type.precision or 0) - (column.type.scale or 0)
        if precision - scale < whole or scale < (column.type.scale or 0):
            return (
                f'column "{given.name}" is {given.shown}, and the input is {column.type}, which is wider: a value may '
                "be a numeric field overflow, or be rounded"
            )
    if given.base in ("timestamp", "timestamptz", "time") and 0 <= given.modifier < _FRACTION.get(
        column.type.unit or "", 6
    ):
        return f'column "{given.name}" is {given.shown}, and would round the times of the input, {column.type}'
    return None


def key_misfit(column: TableColumn, given: ExistingColumn) -> str | None:
    """Why a column that fits cannot be a key; None if it can."""
    if column.type.kind in NESTED:
        return f'column "{given.name}" is {column.type}, which cannot be a key'
    if not given.deterministic:
        return f'column "{given.name}" has a collation that takes different texts for one, and cannot be a key'
    if column.ddl == "TEXT" and given.base in _READ_FROM_TEXT and given.base not in _FOLDS:
        return (
            f'column "{given.name}" is {given.shown}, which takes different texts for one value, and cannot be a key: '
            "a text column can"
        )
    return None


def with_cast(column: TableColumn, given: ExistingColumn) -> TableColumn:
    """The column as the table has it that is there."""
    if column.ddl != "TEXT":
        floating = column.ddl in ("REAL", "DOUBLE PRECISION")
        if given.base in _TEXTS:  # the same text in a row and in a comparison with one
            return replace(column, target="text", fold=Fold.NAN if floating else None)
        return replace(column, fold=Fold.FLOAT if floating else None)
    if given.base == "bpchar":  # without its length: a cast would cut
        return replace(column, target="bpchar", fold=Fold.BLANKS)
    if given.base in _READ_FROM_TEXT or given.enumeration:
        target = given.shown.replace("%", "%%")  # in a statement `%s` stands for values
        return replace(column, target=target, fold=_FOLDS.get(given.base))
    if given.base == "varchar" and given.modifier >= 0:
        return replace(column, limit=given.modifier - 4)
    return column
