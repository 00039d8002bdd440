"""Columns as a node declares them: a map of names to types, inside an options model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic import Field as OptionField

from streamling.plan.types import OPERATION_COLUMN, STRING, DataType, Field
from streamling.plan.written_types import UnknownType, declared_type
from streamling.spec.faults import invalid_value, wrong_type


def _from_text(value: object) -> DataType:
    if isinstance(value, DataType):
        return value
    if not isinstance(value, str):
        raise wrong_type("must be the name of a type as text")
    try:
        return declared_type(value)
    except UnknownType as error:
        raise invalid_value(f"has an invalid type: {error}", hint=error.hint) from error


def check_operation(columns: Mapping[str, DataType | None]) -> None:
    """To call from a validator: the operation column of every node is text, also if it is declared."""
    if OPERATION_COLUMN in columns and columns[OPERATION_COLUMN] != STRING:
        raise invalid_value("must be text: it is the operation of the row", field=OPERATION_COLUMN)


def _check_columns(columns: dict[str, DataType]) -> dict[str, DataType]:
    if "" in columns:
        raise invalid_value("has a column without a name")
    check_operation(columns)
    return columns


DeclaredType = Annotated[
    DataType,
    PlainValidator(_from_text),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["int64", "decimal(20,4)", "timestamp"]}),
]
"""A type in an options model."""

DeclaredColumns = Annotated[dict[str, DeclaredType], OptionField(min_length=1), AfterValidator(_check_columns)]
"""A map of column names to types in an options model, with at least one column."""


def declared_fields(columns: Mapping[str, DataType]) -> tuple[Field, ...]:
    """The columns in alphabetical order. All are nullable: a declaration does not promise values."""
    return tuple(Field(name, columns[name]) for name in sorted(columns))
