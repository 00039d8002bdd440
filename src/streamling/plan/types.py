"""The planner's own types: what every column of every node and every expression is.

Spark and Arrow carry the values; these types say what they mean (see `formats`). They are plain
values without behaviour that needs either library, so validation runs without both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

OPERATION_COLUMN = "_gs_op"


@dataclass(frozen=True, slots=True)
class DataType:
    """A logical type. Parameters that a kind does not have stay None.

    kind       `int64`, `string`, `decimal`, `timestamp`, `list`, ... (names of the pipeline language)
    precision, scale   of `decimal`
    zone       of `timestamp`: None = wall clock without zone, else an instant
    item       of `list`; value type of `map` (keys are strings)
    fields     of `struct`
    """

    kind: str
    precision: int | None = None
    scale: int | None = None
    zone: str | None = None
    item: DataType | None = None
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "timestamp":
            return "timestamp" if self.zone is None else f"timestamp({self.zone})"
        if self.kind in ("list", "map"):
            return f"{self.kind}<{self.item}>"
        if self.kind == "struct":
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
FLOAT32, FLOAT64 = DataType("float32"), DataType("float64")
STRING = DataType("string")
BINARY = DataType("binary")
DATE = DataType("date32")
TIMESTAMP = DataType("timestamp")
TIMESTAMP_UTC = DataType("timestamp", zone="UTC")
DURATION = DataType("duration")

INTEGERS = (INT8, INT16, INT32, INT64)
FLOATS = (FLOAT32, FLOAT64)


def decimal(precision: int, scale: int) -> DataType:
    return DataType("decimal", precision=precision, scale=scale)


def list_of(item: DataType) -> DataType:
    return DataType("list", item=item)


OPERATION_FIELD = Field(OPERATION_COLUMN, STRING, nullable=False)
