"""The aggregate table: its columns, what they are computed from, and their types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from streamling.clients.postgres import quote
from streamling.plan.types import INT64, STRING, DataType, Field, Schema
from streamling.sinks.postgres.columns import TableColumn, table_column
from streamling.sinks.postgres_aggregate.types import postgres_type

if TYPE_CHECKING:
    from streamling.sinks.postgres_aggregate import Aggregate, GroupColumn

GLOBAL_COLUMN = "key"
"""Without groups: the column that identifies the only row."""
GLOBAL_VALUE = "value"
_FLOATS = ("float16", "float32", "float64")
_FRACTION = re.compile(r"timestamp(?:tz)? *\(([0-9]+)\)")


class Computation(Enum):
    """How a column changes: numbers are added, an edge is kept."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class InputValue:
    """A column of the input as a value of the result. `ddl` is its type in a new table, `cast` the type it is cast to;
    None: as it is."""

    column: str
    ddl: str
    cast: str | None = None

    def sql(self, alias: str, *, as_stored: bool = False) -> str:
        """From a row of the landing table, whose column may be wider than that of a new one. `as_stored`: without the
        cast to the type of the result."""
        value = f"{alias}.{quote(self.column)}::{self.ddl}"
        return value if as_stored else self.cast_sql(value)

    def cast_sql(self, value: str) -> str:
        return f"{value}::{self.cast}" if self.cast else value


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """`fit` is compared with the column of an existing table. `value` is None where nothing is read: for a count, and
    for the only row of a result without groups."""

    name: str
    ddl: str
    fit: TableColumn
    value: InputValue | None = None


@dataclass(frozen=True, slots=True)
class ComputedColumn(ResultColumn):
    computation: Computation = Computation.COUNT
    exact: bool = True
    """Adding and subtracting values in any order gives the same: not so for floating-point numbers."""

    @property
    def may_be_infinite(self) -> bool:
        """Whether it is an exact sum of floating-point numbers: after NaN or infinity nothing can be subtracted."""
        return self.computation is Computation.SUM and self.exact and self.value is not None and bool(self.value.cast)

    @property
    def is_edge(self) -> bool:
        return self.computation in (Computation.MIN, Computation.MAX)


@dataclass(frozen=True, slots=True)
class Result:
    """The columns of the aggregate table, in their order."""

    groups: tuple[ResultColumn, ...]
    computed: tuple[ComputedColumn, ...]

    @property
    def is_global(self) -> bool:
        """Whether it has one row only."""
        return self.groups[0].value is None

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.groups)

    @property
    def group_inputs(self) -> tuple[str, ...]:
        """The columns of the input that rows are grouped by."""
        return tuple(column.value.column for column in self.groups if column.value is not None)

    def names_of(self, *computations: Computation) -> list[str]:
        return [column.name for column in self.computed if column.computation in computations]


def result_of(groups: Mapping[str, GroupColumn], aggregates: Mapping[str, Aggregate], columns: Schema) -> Result:
    """The result of options that were checked against these columns of the input."""
    grouped = tuple(_group(name, entry, columns) for name, entry in groups.items())
    whole = ResultColumn(GLOBAL_COLUMN, "TEXT", table_column(Field(GLOBAL_COLUMN, STRING)))
    computed = tuple(column for name, entry in aggregates.items() for column in _computed(name, entry, columns))
    return Result(grouped or (whole,), computed)


def _group(name: str, entry: GroupColumn, columns: Schema) -> ResultColumn:
    field = _field(name, entry, columns)
    ddl, type_ = _type(entry, field)
    value = InputValue(field.name, table_column(field).ddl, _without_length(entry.type))
    return ResultColumn(name, ddl, table_column(Field(name, type_)), value)


def _computed(name: str, entry: Aggregate, columns: Schema) -> Iterator[ComputedColumn]:
    match entry.fn.value:
        case "count":
            yield _count(name)
        case "sum":
            yield _sum(name, _field(name, entry, columns), entry)
        case "avg":
            sum_name, count_name = entry.columns(name)
            yield _sum(sum_name, _field(name, entry, columns), entry)
            yield _count(count_name)
        case edge:
            field = _field(name, entry, columns)
            ddl, type_ = _type(entry, field)
            value = InputValue(field.name, table_column(field).ddl, _without_length(entry.type))
            fit = table_column(Field(name, type_))
            yield ComputedColumn(name, ddl, fit, value, Computation(edge))


def _count(name: str) -> ComputedColumn:
    return ComputedColumn(name, "BIGINT", table_column(Field(name, INT64)))


def _sum(name: str, field: Field, entry: Aggregate) -> ComputedColumn:
    ddl, type_ = _type(entry, field)
    floating = field.type.kind in _FLOATS
    decimal = type_.kind in ("decimal", "decimal_arb")
    # A sum of decimal numbers does not depend on the order of the rows.
    value = InputValue(field.name, table_column(field).ddl, "numeric" if floating and decimal else None)
    exact = decimal or not (floating or type_.kind in _FLOATS)
    return ComputedColumn(name, ddl, table_column(Field(name, type_)), value, Computation.SUM, exact)


def is_floating(field: Field, type_: str | None) -> bool:
    """Whether a sum of this column, in a column of this Postgres type, is a floating-point number."""
    return (postgres_type(type_) if type_ else field.type).kind in _FLOATS


def rounds(field: Field, type_: str, *, exact: bool) -> bool:
    """Whether a sum of this column may be rounded by a column of this Postgres type. A sum of floating-point numbers
    may be cut to some decimal places, unless it has to be `exact`."""
    result = postgres_type(type_)
    if result.kind in _FLOATS or type_.strip().lower() in ("numeric", "decimal"):
        return False
    if field.type.kind in _FLOATS:
        return exact or not result.scale
    return (field.type.scale or 0) > (result.scale or 0)


def _field(name: str, entry: GroupColumn, columns: Schema) -> Field:
    field = columns.get(entry.from_ or name)
    if field is None:
        raise AssertionError("the columns were not checked")
    return field


def _type(entry: GroupColumn, field: Field) -> tuple[str, DataType]:
    """The type as the table is created with it, and as it is compared with an existing table."""
    if entry.type is None:
        return table_column(field).ddl, field.type
    type_ = postgres_type(entry.type)
    if (fraction := _FRACTION.fullmatch(entry.type.strip().lower())) is not None and int(fraction[1]) < 6:
        type_ = DataType("timestamp", unit="s" if fraction[1] == "0" else "ms")
    return entry.type, type_


def _without_length(type_: str | None) -> str | None:
    """A cast to a text type with a length would cut values off; the assignment to the column rejects them instead."""
    if type_ is not None and type_.strip().lower().startswith(("varchar", "char")):
        return "bpchar" if type_.strip().lower().startswith("char") else "varchar"
    return type_
