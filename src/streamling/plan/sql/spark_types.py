"""The Spark types of our types, and the types in which they are computed.

Every type has a carrier, a Spark type that can hold all its values, so that any column can be passed on. Some logical
types share a carrier: they are computed as the type of the carrier.
"""

from __future__ import annotations

from dataclasses import replace

from streamling.plan.sql.values import Refusal, identifier
from streamling.plan.types import (
    BINARY,
    DATE,
    FLOAT32,
    INT16,
    INT32,
    INT64,
    SPARK_DIGITS,
    STRING,
    TIME64,
    DataType,
    decimal,
    list_of,
    map_of,
)

_NAMES = {
    "null": "VOID",
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date32": "DATE",
    # Spark's TIME is unchanged by Arrow, can be computed and compared, so we need no integer of microseconds.
    "time64": "TIME(6)",
    "duration": "INTERVAL DAY TO SECOND",
    "interval": "STRING",
    "decimal_arb": "STRING",
}
_COMPUTE_AS = {
    "uint8": INT16,
    "uint16": INT32,
    "uint32": INT64,
    "uint64": decimal(20, 0),
    "float16": FLOAT32,
    "date64": DATE,
    "time32": TIME64,
}
MAX_PRECISION = SPARK_DIGITS


def spark_type(type_: DataType) -> str:
    """The Spark SQL name of a type's carrier."""
    type_ = computed_type(type_)
    if type_.wide:
        return "STRING"
    if type_.kind == "decimal":
        return "DECIMAL({},{})".format(*digits(type_))
    if type_.kind == "timestamp":
        return "TIMESTAMP_NTZ" if type_.zone is None else "TIMESTAMP"
    if type_.kind == "list" and type_.item is not None:
        return f"ARRAY<{spark_type(type_.item)}>"
    if type_.kind == "map" and type_.item is not None:
        return f"MAP<{spark_type(type_.key or STRING)}, {spark_type(type_.item)}>"
    if type_.kind == "struct":
        return "STRUCT<" + ", ".join(f"{identifier(f.name)}: {spark_type(f.type)}" for f in type_.fields) + ">"
    return _NAMES[type_.kind]


def computed_type(type_: DataType) -> DataType:
    """The type in which values of a type are computed: it has the same carrier, but fewer parameters."""
    match type_.kind:
        case "timestamp" if type_.unit is not None:
            return replace(type_, unit=None)
        case "binary":
            return BINARY
        case "list" if type_.item is not None:
            return list_of(computed_type(type_.item))
        case "map" if type_.item is not None:
            return map_of(computed_type(type_.item), computed_type(type_.key or STRING))
        case "struct":
            return replace(type_, fields=tuple(replace(f, type=computed_type(f.type)) for f in type_.fields))
    return _COMPUTE_AS.get(type_.kind, type_)


def check_computable(type_: DataType) -> None:
    """Refuse the types whose carrier is a text: Spark cannot compute with them."""
    if type_.wide:
        raise Refusal(f"computing with {type_}, which has more than {MAX_PRECISION} digits, is not supported yet")
    if type_.kind == "interval":
        raise Refusal(f"values of type {type_} can only be selected: computing with them is not supported yet")
    for part in (type_.item, type_.key, *(field.type for field in type_.fields)):
        if part is not None:
            check_computable(part)


def digits(type_: DataType) -> tuple[int, int]:
    """Precision and scale of a decimal type."""
    if type_.precision is None or type_.scale is None:
        raise AssertionError(f"{type_} is not a complete decimal type")
    return type_.precision, type_.scale
