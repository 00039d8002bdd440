"""Columns as a node declares them: a map of names to types, inside an options model.

A type is a text, or a YAML value: a map is a struct, a list with one type is a list, `{"*": type}` is a map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic import Field as OptionField

from streamling.plan.flat_types import UnknownType
from streamling.plan.types import (
    OPERATION_COLUMN,
    OPERATION_FIELD,
    STRING,
    DataType,
    Field,
    Schema,
    list_of,
    map_of,
    struct_of,
)
from streamling.plan.written_types import checked_nested, declared_type, is_cut_off
from streamling.spec.faults import invalid_value, wrong_type
from streamling.spec.model_shape import Path

Name = TypeVar("Name")
_DEEPEST = 64


ANY_KEY = "*"
"""The only field of a map that declares a map: `{"*": int64}` has any keys, with values of this type."""
_FORMS = 'a name such as int64, a map of the fields of a struct, a list with one type, or {"*": type} for a map'


def _declared(value: object) -> DataType:
    """The type that a value declares; errors name the field inside of it."""
    return value if isinstance(value, DataType) else _type(value, ())


def _type(value: object, path: Path) -> DataType:
    if len(path) > _DEEPEST:
        raise invalid_value(f"is nested deeper than {_DEEPEST} levels", field=path)
    try:
        match value:
            case str():
                return declared_type(value)
            case [item]:
                return checked_nested(list_of(_type(item, (*path, 0))))
            case {"*": item, **others} if not others:
                return checked_nested(map_of(_type(item, (*path, ANY_KEY))))
            case dict() if value:
                return _struct(value, path)
    except UnknownType as error:
        raise invalid_value(f"has an invalid type: {error}", field=path, hint=error.hint) from error
    if isinstance(value, list):
        raise wrong_type(f"must have one type, that of all items, not {len(value)}", field=path)
    raise wrong_type(f"must be a type: {_FORMS}", field=path)


def _struct(value: dict[object, object], path: Path) -> DataType:
    fields = []
    for name, inner in without_cut_ends(value).items():
        if not isinstance(name, str):
            raise wrong_type("has a field whose name is not text; write it in quotes", field=path)
        if name == ANY_KEY:
            raise invalid_value(f"must have '{ANY_KEY}' alone, which declares a map, or only fields", field=path)
        fields.append(Field(name, _type(inner, (*path, name))))
    return checked_nested(struct_of(*fields))


def without_cut_ends(columns: Mapping[Name, object]) -> dict[Name, object]:
    """The columns without those that YAML has made of the ends of types: `{a: decimal(12,2)}` has a column `2)`.

    The beginning of the type is reported; its end is a consequence.
    """
    if not any(isinstance(value, str) and is_cut_off(value) for value in columns.values()):
        return dict(columns)
    ends = [name for name, value in columns.items() if value is None and str(name).endswith((")", ">"))]
    return {name: value for name, value in columns.items() if name not in ends}


def _drop_cut_ends(value: object) -> object:
    return without_cut_ends(value) if isinstance(value, dict) else value


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
    PlainValidator(_declared),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {"type": ["string", "object", "array"], "examples": ["int64", "decimal(20,4)", {"name": "string"}, ["string"]]}
    ),
]
"""A type in an options model: its text, or a map or list of types."""

DeclaredColumns = Annotated[
    dict[str, DeclaredType],
    OptionField(min_length=1),
    BeforeValidator(_drop_cut_ends),
    AfterValidator(_check_columns),
]
"""A map of column names to types in an options model, with at least one column."""


def declared_fields(columns: Mapping[str, DataType]) -> tuple[Field, ...]:
    """The columns in alphabetical order. All are nullable: a declaration does not promise values."""
    return tuple(Field(name, columns[name]) for name in sorted(columns))


def returned_columns(declared: Mapping[str, DataType] | None, rows: Schema) -> Schema:
    """The columns of rows that a function returns: those declared, `_gs_op` last, or else those of its input.

    A function may leave out any column, so all are nullable except the operation.
    """
    fields = rows.fields if declared is None else declared_fields(declared)
    columns = tuple(OPERATION_FIELD if f.name == OPERATION_COLUMN else Field(f.name, f.type) for f in fields)
    return Schema(columns if OPERATION_FIELD in columns else (*columns, OPERATION_FIELD))
