"""Finds JSON numbers that would lose digits in a float64 column whose type was inferred.

Arrow reads all rows of a chunk as doubles. This looks for what could have lost digits: numbers of more than 17 digits
with a point, very small numbers, and doubles beyond 2**53. Only the lines with such a number are read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamling.formats.finite import has_floats
from streamling.formats.json_text import fraction
from streamling.sources.file.exact_text import keeps_value, needs_digits
from streamling.sources.file.number_scan import long_numbers, small_exponents

_DECODER = json.JSONDecoder(parse_float=fraction)


@dataclass(frozen=True, slots=True)
class FloatColumns:
    """The columns with floats whose types were inferred; floats may be inside of lists and objects."""

    types: Mapping[str, pa.DataType]

    @classmethod
    def of(cls, schema: pa.Schema, inferred: frozenset[str]) -> FloatColumns:
        return cls({field.name: field.type for field in schema if field.name in inferred and has_floats(field.type)})

    def is_inexact(self, data: bytes, batch: pa.RecordBatch) -> bool:
        """Whether a number of a line would change. `batch` has the rows of the lines."""
        if not self.types:
            return False
        if any(_is_large(batch.column(name)) for name in self.types):
            return any(self.find(line) is not None for line in data.split(b"\n") if line.strip())
        return any(self.find(_line_at(data, place)) is not None for place in _suspects(data))

    def find(self, line: bytes) -> tuple[str, str] | None:
        """The first column of a line with a number that would change, and the number."""
        try:
            values = _DECODER.decode(line.decode())
        except (ValueError, RecursionError):
            return None
        for name, type_ in self.types.items():
            number = next(_inexact_numbers(type_, values.get(name)), None)
            if number is not None:
                return name, str(number)
        return None


def _inexact_numbers(type_: pa.DataType, value: Any) -> Iterator[Any]:
    if value is None:
        return
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _inexact_numbers(field.type, value.get(field.name))
    elif pa.types.is_list(type_):
        for item in value:
            yield from _inexact_numbers(type_.value_type, item)
    elif pa.types.is_float64(type_) and not isinstance(value, float) and not keeps_value(str(value), float(value)):
        yield value


def _is_large(column: pa.Array) -> bool:
    type_ = column.type
    if pa.types.is_float64(type_):
        return needs_digits(column)
    if not has_floats(type_):
        return False
    return any(map(_is_large, column.flatten() if pa.types.is_struct(type_) else [column.flatten()]))


def _line_at(data: bytes, place: int) -> bytes:
    end = data.find(b"\n", place)
    return data[data.rfind(b"\n", 0, place) + 1 : end if end >= 0 else len(data)]


def _suspects(data: bytes) -> list[int]:
    """Places in what may be numbers that lose digits."""
    letters = np.frombuffer(data, np.uint8)
    return [*small_exponents(letters).tolist(), *long_numbers(letters).tolist()]
