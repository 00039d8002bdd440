"""The ClickHouse types that our types become in a table we make."""

from __future__ import annotations

from streamling.plan.types import DECIMAL256_DIGITS, DataType

_PLAIN = {
    "boolean": "UInt8",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Float32",
    "float32": "Float32",
    "float64": "Float64",
    "string": "String",
    "date32": "Date",
    "date64": "DateTime",
    "time32": "DateTime",
    "time64": "DateTime64(9)",
    "duration": "Int64",
    "interval": "String",
}
_TIMESTAMPS = {"s": "DateTime", "ms": "DateTime64(3)", None: "DateTime64(6)", "ns": "DateTime64(9)"}
_INTEGERS = {"u256": "UInt256", "i256": "Int256"}
_INTEGER_DIGITS = 78
_NEVER_NULLABLE = frozenset({"list", "struct", "map", "null"})


class NoClickHouseType(ValueError):
    """A value of this type does not fit into any ClickHouse type but text."""

    def __init__(self, type_: DataType) -> None:
        super().__init__(f"ClickHouse has no number as wide as {type_}")


def clickhouse_type(type_: DataType, *, nullable: bool) -> str:
    """The type of a column; what is inside of lists and maps is not nullable. Raises NoClickHouseType."""
    if type_.kind == "null":
        return "Nullable(Nothing)"
    text = _bare(type_)
    return f"Nullable({text})" if nullable and type_.kind not in _NEVER_NULLABLE else text


def _bare(type_: DataType) -> str:
    match type_:
        case DataType(kind="decimal" | "decimal_arb"):
            return _number(type_)
        case DataType(kind="timestamp", unit=unit):
            return _TIMESTAMPS[unit]
        case DataType(kind="binary", length=length):
            return "String" if length is None else f"FixedString({length})"
        case DataType(kind="list", item=DataType() as item):
            return f"Array({clickhouse_type(item, nullable=False)})"
        case DataType(kind="map", key=DataType() as key, item=DataType() as item):
            return f"Map({clickhouse_type(key, nullable=False)}, {clickhouse_type(item, nullable=False)})"
        case DataType(kind="struct", fields=fields):
            parts = (f"{_quoted(f.name)} {clickhouse_type(f.type, nullable=f.nullable)}" for f in fields)
            return f"Tuple({', '.join(parts)})"
    return _PLAIN[type_.kind]


def _number(type_: DataType) -> str:
    precision, scale = type_.precision or 0, type_.scale or 0
    if type_.native is not None and scale == 0 and precision <= _INTEGER_DIGITS:
        return _INTEGERS[type_.native]
    if precision <= DECIMAL256_DIGITS:
        return f"Decimal({precision},{scale})"
    raise NoClickHouseType(type_)


def _quoted(name: str) -> str:
    plain = name.isascii() and name.isidentifier()
    return name if plain else "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
