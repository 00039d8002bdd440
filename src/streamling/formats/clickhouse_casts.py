"""The SQL with which a ClickHouse column is read as a value of a type that the pipeline has chosen.

The server casts, so that the values are those that a query on the server would give. Numbers of more digits than Spark
has travel as text: no value depends on their bytes.
"""

from __future__ import annotations

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.formats.clickhouse_syntax import quote_name
from streamling.formats.clickhouse_types import NUMBERS, column_type
from streamling.formats.clickhouse_wire import wire_expression
from streamling.plan.types import STRING, DataType, Field

_PLAIN = {
    **NUMBERS,
    "boolean": "Bool",
    "string": "String",
    "date32": "Date32",
    "time32": "Int32",
    "time64": "Int64",
    "timestamp": "DateTime64(6, 'UTC')",
}
_NEVER_NULLABLE = frozenset({"list", "map", "struct"})
_INTEGERS = frozenset({"Int8", "Int16", "Int32", "Int64", "Int128", "Int256"})


def cast_expression(field: Field, type_: str) -> str:
    """The SQL for a column of this ClickHouse type, as the type of the field; NULL stays NULL.

    Raises UserError if there is no such cast.
    """
    source, nullable = _source_type(field, type_)
    if source == field.type or (source.kind == field.type.kind == "timestamp"):
        return wire_expression(field.name, type_)
    name = quote_name(field.name)
    if field.type.kind in ("decimal", "decimal_arb"):
        return _decimal(name, type_, field.type, nullable=nullable)
    try:
        target = _target(field.type)
    except KeyError as error:
        message = f"the column '{field.name}' has the ClickHouse type {type_}, which cannot be read as {field.type}"
        raise UserError(SCHEMA_UNUSABLE, message) from error
    target = f"Nullable({target})" if nullable and field.type.kind not in _NEVER_NULLABLE else target
    # A plain cast would turn an integer that does not fit into another one.
    return f"accurateCast({name}, '{target}')" if "int" in field.type.kind else f"CAST({name} AS {target})"


def _source_type(field: Field, type_: str) -> tuple[DataType, bool]:
    """Any type can be read as text, also one that has no counterpart here."""
    try:
        return column_type(type_, field.name)
    except UserError:
        if field.type != STRING:
            raise
        return DataType("null"), type_.startswith("Nullable(")


def _decimal(name: str, type_: str, target: DataType, *, nullable: bool) -> str:
    scale = target.scale or 0
    if not target.wide:
        return f"toDecimal128({name}, {scale})"
    if scale == 0 and _is_integer(type_):  # it may have more digits than ClickHouse's decimals
        return f"CAST({name} AS {'Nullable(String)' if nullable else 'String'})"
    return f"toDecimalString(toDecimal256({name}, {scale}), {scale})"


def _is_integer(type_: str) -> bool:
    while type_.startswith(("Nullable(", "LowCardinality(")):
        type_ = type_.partition("(")[2].removesuffix(")")
    return type_.removeprefix("U") in _INTEGERS


def _target(type_: DataType) -> str:
    """The type that a value has on its way to us. Raises KeyError."""
    match type_:
        case DataType(kind="binary", length=length):
            return "String" if length is None else f"FixedString({length})"
        case DataType(kind="list", item=DataType() as item):
            return f"Array({_inner(item)})"
        case DataType(kind="map", key=DataType() as key, item=DataType() as item):
            return f"Map({_target(key)}, {_inner(item)})"
        case DataType(kind="struct", fields=fields):
            return f"Tuple({', '.join(f'{quote_name(f.name)} {_inner(f.type)}' for f in fields)})"
        case DataType(kind="decimal") if not type_.wide:
            return f"Decimal({type_.precision}, {type_.scale})"
        case DataType(kind="decimal" | "decimal_arb"):
            return "String"
    return _PLAIN[type_.kind]


def _inner(type_: DataType) -> str:
    """A member or an item, which may be NULL if ClickHouse allows that."""
    text = _target(type_)
    return text if type_.kind in _NEVER_NULLABLE else f"Nullable({text})"
