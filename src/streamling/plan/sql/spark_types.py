"""How Spark spells our types."""

from __future__ import annotations

from streamling.plan.sql.values import Refusal, identifier
from streamling.plan.types import DataType

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
    "duration": "INTERVAL DAY TO SECOND",
}
MAX_PRECISION = 38


def spark_type(type_: DataType) -> str:
    """The Spark SQL name of a type. Types that Spark cannot compute with are refused."""
    if type_.kind == "decimal":
        return _decimal(type_)
    if type_.kind == "timestamp":
        return "TIMESTAMP_NTZ" if type_.zone is None else "TIMESTAMP"
    if type_.kind == "list" and type_.item is not None:
        return f"ARRAY<{spark_type(type_.item)}>"
    if type_.kind == "map" and type_.item is not None:
        return f"MAP<STRING, {spark_type(type_.item)}>"
    if type_.kind == "struct":
        return "STRUCT<" + ", ".join(f"{identifier(f.name)}: {spark_type(f.type)}" for f in type_.fields) + ">"
    if type_.kind not in _NAMES:
        raise Refusal(f"values of type {type_} can only be passed on: computing with them is not supported yet")
    return _NAMES[type_.kind]


def _decimal(type_: DataType) -> str:
    precision, scale = digits(type_)
    if precision > MAX_PRECISION:
        raise Refusal(f"computing with {type_}, more than {MAX_PRECISION} digits, is not supported yet")
    return f"DECIMAL({precision},{scale})"


def digits(type_: DataType) -> tuple[int, int]:
    """Precision and scale of a decimal type."""
    if type_.precision is None or type_.scale is None:
        raise AssertionError(f"{type_} is not a complete decimal type")
    return type_.precision, type_.scale
