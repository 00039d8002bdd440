"""The planner's own types, for every column of every node and for every expression.

Spark and Arrow carry the values; these types define what they mean (see `formats`). They need neither library, so
validation runs without both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

OPERATION_COLUMN = "_gs_op"

SPARK_DIGITS = 38
"""Digits of Spark's decimals."""
DECIMAL256_DIGITS = 76
MOST_DIGITS = 65_535


@dataclass(frozen=True, slots=True)
class DataType:
    """A logical type. Parameters that a kind does not have stay None.

    kind       `int64`, `string`, `decimal`, `timestamp`, `list`, ... (names of the pipeline language)
    precision, scale   of `decimal` (up to 76 digits) and of `decimal_arb` (up to 65,535)
    native     of `decimal_arb` (78,0): the 256-bit integer it came from, `u256` or `i256`
    zone       of `timestamp`: None = wall clock without zone, else an instant
    unit       of `timestamp`: the resolution at its source, `s`, `ms` or `ns`; None = microseconds, as in Spark
    length     of `binary`: the number of bytes of every value; None = any
    item       of `list`; value type of `map`
    key        key type of `map`
    fields     of `struct`
    """

    kind: str
    precision: int | None = None
    scale: int | None = None
    native: str | None = None
    zone: str | None = None
    unit: str | None = None
    length: int | None = None
    item: DataType | None = None
    key: DataType | None = None
    fields: tuple[Field, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether values have more digits than Spark's decimals: Spark carries them as canonical decimal text."""
        return self.kind == "decimal_arb" or (self.kind == "decimal" and (self.precision or 0) > SPARK_DIGITS)

    def __str__(self) -> str:
        match self.kind:
            case "decimal" | "decimal_arb":
                return self.native or f"{self.kind}({self.precision},{self.scale})"
            case "timestamp":
                parameters = [part for part in (self.unit, self.zone) if part]
                return f"timestamp({', '.join(parameters)})" if parameters else "timestamp"
            case "binary" if self.length is not None:
                return f"binary({self.length})"
            case "list":
                return f"list<{self.item}>"
            case "map":
                return f"map<{self.key}, {self.item}>"
            case "struct":
                return "struct<" + ", ".join(f"{f.name}: {f.type}" for f in self.fields) + ">"
        return self.kind


@dataclass(frozen=True, slots=True)
class Field:
    """A named column or struct member."""

    name: str
    type: DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a node, in order."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return any(f.name == name for f in self.fields)

    def get(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)


NULL = DataType("null")
BOOLEAN = DataType("boolean")
INT8, INT16, INT32, INT64 = (DataType(k) for k in ("int8", "int16", "int32", "int64"))
UINT8, UINT16, UINT32, UINT64 = (DataType(k) for k in ("uint8", "uint16", "uint32", "uint64"))
FLOAT16, FLOAT32, FLOAT64 = DataType("float16"), DataType("float32"), DataType("float64")
STRING = DataType("string")
BINARY = DataType("binary")
DATE, DATE64 = DataType("date32"), DataType("date64")
TIME32, TIME64 = DataType("time32"), DataType("time64")
TIMESTAMP = DataType("timestamp")
TIMESTAMP_UTC = DataType("timestamp", zone="UTC")
DURATION = DataType("duration")
INTERVAL = DataType("interval")
U256 = DataType("decimal_arb", precision=78, scale=0, native="u256")
I256 = DataType("decimal_arb", precision=78, scale=0, native="i256")

INTEGERS = (INT8, INT16, INT32, INT64)
FLOATS = (FLOAT32, FLOAT64)


def decimal(precision: int, scale: int) -> DataType:
    return DataType("decimal", precision=precision, scale=scale)


def decimal_arb(precision: int, scale: int) -> DataType:
    return DataType("decimal_arb", precision=precision, scale=scale)


def map_of(item: DataType, key: DataType = STRING) -> DataType:
    return DataType("map", item=item, key=key)


def struct_of(*fields: Field) -> DataType:
    return DataType("struct", fields=fields)


def list_of(item: DataType) -> DataType:
    return DataType("list", item=item)


OPERATION_FIELD = Field(OPERATION_COLUMN, STRING, nullable=False)
