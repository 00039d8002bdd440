"""The SQL with which a ClickHouse column is read as a value of a type that the pipeline has chosen.

The server casts, so that the values are those that a query on the server would give. Numbers of more digits than Spark
has travel as text: no value depends on their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.formats.clickhouse_syntax import quote_name, quote_text
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
_READ_FROM_TEXT = frozenset({"boolean", "float16", "float32", "float64", "date32", "timestamp"})
_INTEGERS = frozenset({"Int8", "Int16", "Int32", "Int64", "Int128", "Int256"})


@dataclass(frozen=True, slots=True)
class Cast:
    """`sql` is a column as another type; NULL stays NULL. `fails`: a condition in SQL, true for a value that cannot be
    cast, for which `sql` is NULL; None if the server ends the query with an error, or if every value can be cast."""

    sql: str
    fails: str | None = None


def cast_to(field: Field, type_: str) -> Cast:
    """A column of this ClickHouse type as the type of the field. Raises UserError if there is no such cast."""
    source, nullable = _source_type(field, type_)
    if source == field.type or (source.kind == field.type.kind == "timestamp"):
        return Cast(wire_expression(field.name, type_))
    name, target = quote_name(field.name), field.type
    if target.kind in ("decimal", "decimal_arb"):
        return _decimal(name, type_, source, target, nullable=nullable)
    message = f"the column '{field.name}' has the ClickHouse type {type_}, which cannot be read as {field.type}"
    try:
        text = _target(target)
    except KeyError as error:
        raise UserError(SCHEMA_UNUSABLE, message) from error
    if target.kind in _NEVER_NULLABLE:
        inner = list(_inner_casts(source, target))
        if any(had == STRING and wanted.kind not in ("string", "binary") for had, wanted in inner):
            # The server would turn text that is no such value into NULL, without an error.
            raise UserError(SCHEMA_UNUSABLE, f"{message}: text inside of it is not parsed")
        if any("int" in wanted.kind for _, wanted in inner):
            return Cast(f"accurateCast({name}, {quote_text(text)})")
    # A plain cast would turn an integer that does not fit into another one.
    if "int" in target.kind or (source == STRING and target.kind in _READ_FROM_TEXT):
        return _checked(name, f"accurateCastOrNull({name}, {quote_text(text)})")
    text = f"Nullable({text})" if nullable and target.kind not in _NEVER_NULLABLE else text
    return Cast(f"CAST({name} AS {text})")


def _inner_casts(source: DataType, target: DataType) -> Iterator[tuple[DataType, DataType]]:
    """The plain types inside of two types, where they differ. If their shapes do, the server refuses the cast."""
    pairs = [(source.key, target.key), (source.item, target.item)]
    pairs += [(had.type, wanted.type) for had, wanted in zip(source.fields, target.fields, strict=False)]
    inside = [(had, wanted) for had, wanted in pairs if had is not None and wanted is not None]
    if not inside and source != target:
        yield source, target
    for had, wanted in inside:
        yield from _inner_casts(had, wanted)


def _checked(name: str, sql: str) -> Cast:
    return Cast(sql, f"isNotNull({name}) AND isNull({sql})")


def _source_type(field: Field, type_: str) -> tuple[DataType, bool]:
    """Any type can be read as text, also one that has no counterpart here."""
    try:
        return column_type(type_, field.name)
    except UserError:
        if field.type != STRING:
            raise
        return DataType("null"), type_.startswith("Nullable(")


def _decimal(name: str, type_: str, source: DataType, target: DataType, *, nullable: bool) -> Cast:
    scale = target.scale or 0
    if not target.wide:
        return _checked(name, f"accurateCastOrNull({name}, 'Decimal(38, {scale})')")
    if scale == 0 and _is_integer(type_):  # it may have more digits than ClickHouse's decimals
        return Cast(f"CAST({name} AS {'Nullable(String)' if nullable else 'String'})")
    if source == STRING:
        return _checked(name, f"toDecimalString(toDecimal256OrNull({name}, {scale}), {scale})")
    return Cast(f"toDecimalString(toDecimal256({name}, {scale}), {scale})")


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
