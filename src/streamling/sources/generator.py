"""`generator`: rows computed from their number, for demos, tests and benchmarks.

Delivery: a slice is a range of row numbers, and a row is a function of its number, the seed and the epoch's `now()`. A
replay of a slice always gives the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from streamling.connector import Extent, Json, Kind, Offer, Projection, Room, Slice, Source, register
from streamling.errors import SQL_TYPES
from streamling.plan.sql import Expression, Function, Value, compile_expression
from streamling.plan.types import FLOAT64, INT64, OPERATION_COLUMN, OPERATION_FIELD, STRING, Schema
from streamling.plan.types import Field as Column
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Keyed, SourceOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

_ROW = Schema((Column("id", INT64, nullable=False),))
_BATCH_ROWS = 50_000


class GeneratorOptions(Keyed, SourceOptions):
    """Generates rows: as many and as fast as configured, the same rows for the same seed."""

    rows: int | None = Field(default=None, ge=0, description="Total number of rows; without it the source never ends.")
    rate: float | None = Field(default=None, gt=0, description="Rows per second; without it as fast as possible.")
    seed: int = Field(default=0, description="Seed of `random()`.")
    columns: dict[str, str] = Field(
        default_factory=lambda: {"id": "id"},
        min_length=1,
        description="Column name to SQL expression over `id`, the number of the row from 0. `random()` is a number "
        "from 0 to below 1 that depends only on row, column and seed; `now()` is the time of the epoch. "
        "A column `_gs_op` sets the operation; without it every row is an insert.",
    )

    @property
    def ends(self) -> bool:
        return self.rows is not None

    @property
    def carries_changes(self) -> bool:
        return self.columns.get(OPERATION_COLUMN, "'i'").strip() != "'i'"

    def output_schema(self, node: NodeSpec) -> Schema:
        """Types follow from the expressions; no other system is asked."""
        compiled = self.compiled(node)
        operation = compiled[OPERATION_COLUMN].type
        if operation != STRING:
            message = f"`{OPERATION_COLUMN}` must be text, this is {operation}"
            raise node.error(SQL_TYPES, message, "columns", OPERATION_COLUMN)
        fields = [Column(name, e.type, e.nullable) for name, e in compiled.items() if name != OPERATION_COLUMN]
        return Schema((*fields, OPERATION_FIELD))

    def compiled(self, node: NodeSpec) -> dict[str, Expression]:
        """The expressions as Spark SQL, `_gs_op` last."""
        texts = {name: text for name, text in self.columns.items() if name != OPERATION_COLUMN}
        texts[OPERATION_COLUMN] = self.columns.get(OPERATION_COLUMN, "'i'")
        return {
            name: compile_expression(
                text,
                _ROW,
                node=node.name,
                locate=node.text_locator("columns", name),
                functions={"random": self._random(name)},
                salt=name,
            )
            for name, text in texts.items()
        }

    def _random(self, column: str) -> Function:
        salt = column.replace("\\", "\\\\").replace("'", "\\'")
        # 53 bits of a hash of row, seed and column, as a fraction: all calls in one column give the same value.
        text = f"(shiftrightunsigned(xxhash64(`id`, {self.seed}L, '{salt}'), 11) * 1.1102230246251565E-16D)"
        return Function("random()", (), lambda _: Value(text, FLOAT64, nullable=False))


@dataclass(frozen=True, slots=True)
class GeneratorReader:
    def read(self, part: Json) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first, end = _bounds(part)
        for start in range(first, end, _BATCH_ROWS):
            yield pa.RecordBatch.from_arrays([pa.arange(start, min(start + _BATCH_ROWS, end))], names=["id"])


class GeneratorSource(Source):
    columns = _ROW

    def __init__(self, node: NodeSpec, options: GeneratorOptions) -> None:
        self._node = node.ref
        self._key = f"{node.ref}:generator"
        self._options = options
        compiled = options.compiled(node)
        expressions = compiled.values()
        self.select: Projection | None = Projection(
            tuple((e.text, name) for name, e in compiled.items()),
            reads=frozenset[str]().union(*(e.reads for e in expressions)),
            functions=frozenset[str]().union(*(e.functions for e in expressions)),
            parameters=frozenset[str]().union(*(e.parameters for e in expressions)),
        )
        self._next = 0
        self._stored: Json = None
        self._first = 0
        """The first row since `open`, from which the rate counts."""
        self._opened_at = 0.0

    def open(self, positions: Mapping[str, Json]) -> None:
        stored = positions.get(self._key)
        self._stored = stored
        next_ = stored.get("next") if isinstance(stored, dict) else None
        self._next = next_ if isinstance(next_, int) else 0
        self._first = self._next
        self._opened_at = time.monotonic()

    def offer(self, room: Room) -> Offer | None:
        end = self._next + room.rows
        if self._options.rows is not None:
            end = min(end, self._options.rows)
        if self._options.rate is not None:
            end = min(end, self._first + int((time.monotonic() - self._opened_at) * self._options.rate))
        if end <= self._next:
            return None
        parts: tuple[Json, ...] = tuple([first, last] for first, last in room.cut(self._next, end))
        slice_ = Slice(self._node, self._key, self._stored, {"next": end}, parts, end - self._next)
        self._next, self._stored = end, slice_.end
        return Offer((slice_,))

    @property
    def ended(self) -> bool:
        return self._options.rows is not None and self._next >= self._options.rows

    @property
    def bounded(self) -> bool:
        return self._options.rows is not None

    def extent(self) -> Extent | None:
        rows, rate = self._options.rows, self._options.rate
        if rows is None and rate is not None:  # it never ends: the rows that are due by now
            rows = max(self._next, self._first + int((time.monotonic() - self._opened_at) * rate))
        return None if rows is None else Extent(self._next, rows, "rows")

    def reader(self) -> GeneratorReader:
        return GeneratorReader()


def _bounds(part: Json) -> tuple[int, int]:
    if isinstance(part, list) and len(part) == 2 and isinstance(part[0], int) and isinstance(part[1], int):
        return part[0], part[1]
    raise ValueError(f"not a range of row numbers: {part!r}")


def _build(node: NodeSpec, settings: Settings) -> GeneratorSource:
    if not isinstance(node.options, GeneratorOptions):
        raise TypeError(node.options)
    return GeneratorSource(node, node.options)


register(Kind(Role.SOURCE, "generator", GeneratorOptions, _build))
