"""Finds NaN and infinities in batches, also inside of lists, structs and maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class NonFinite:
    """The first row of a batch with such a value, the column, and the value or what contains it."""

    index: int
    column: str
    value: Any


def has_floats(type_: pa.DataType) -> bool:
    """Whether values of the type are floats or contain some."""
    if pa.types.is_floating(type_):
        return True
    return any(has_floats(type_.field(index).type) for index in range(type_.num_fields))


def find_non_finite(batch: pa.RecordBatch, columns: Sequence[str]) -> NonFinite | None:
    """The first row in one of the columns, which have floats."""
    for name in columns:
        column = batch.column(name)
        if not _is_finite(column):
            index = _first(column, 0, len(column))
            if index is not None:
                return NonFinite(index, name, column[index].as_py())
    return None


def _first(column: pa.Array, start: int, end: int) -> int | None:
    """Found by halving."""
    if _is_finite(column.slice(start, end - start)):
        return None
    if end - start == 1:
        return start
    middle = (start + end) // 2
    found = _first(column, start, middle)
    return found if found is not None else _first(column, middle, end)


def _is_finite(array: pa.Array) -> bool:
    type_ = array.type
    if pa.types.is_float16(type_):
        array = array.cast(pa.float32())
    if pa.types.is_floating(type_):
        return bool(pc.all(pc.is_finite(array), min_count=0).as_py())
    if not has_floats(type_):
        return True
    if pa.types.is_struct(type_):
        return all(map(_is_finite, array.flatten()))
    if pa.types.is_map(type_):
        offsets = array.offsets
        first, end = offsets[0].as_py(), offsets[-1].as_py()
        return all(_is_finite(part.slice(first, end - first)) for part in (array.keys, array.items))
    return _is_finite(array.flatten())
