"""Rows as JSON text, column by column: one object per row, columns in order, nulls included, no spaces.

Decimals keep all their digits, NaN and infinities become null, binary is lower-case hex, times are ISO text with an
offset only if the type has a zone; years have four digits or more. The form of a value depends only on its type.
Decimals with more digits than Spark's are text columns: the logical type is needed to write those of up to 76 digits as
numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.time_text import time_text, time_texts
from streamling.plan.types import DataType, Schema

escape = json.encoder.encode_basestring
"""A text as a JSON string; only quotes, backslashes and control characters are escaped."""
_ZERO_FRACTION = r"\.0+(Z?)$"
Render = Callable[[Any], str]


def json_rows(batch: pa.RecordBatch, schema: Schema | None = None, *, exact: bool = False) -> list[str]:
    """One JSON object per row; `schema` has the logical types of the columns. `exact`: NaN and infinities are text."""
    if batch.num_rows == 0:
        return []
    types = {field.name: field.type for field in schema or ()}
    columns = [_column(batch.column(name), types.get(name), exact=exact) for name in batch.schema.names]
    prefixes = [f"{escape(name)}:" for name in batch.schema.names]
    template = "{" + ",".join(prefix.replace("%", "%%") + "%s" for prefix in prefixes) + "}"
    return [template % row for row in zip(*columns, strict=True)]


def json_row(rows: pa.RecordBatch | pa.Table, index: int) -> Any:
    """One row as an object, as it is stored in a dead letter; `formats/letter_rows.py` makes the row from it again.

    A decimal that is not exact as a double becomes text, and so do NaN and infinities.
    """
    row = rows.slice(index, 1)
    (found,) = json_objects(row.combine_chunks().to_batches()[0] if isinstance(row, pa.Table) else row, [0])
    return found


def json_objects(batch: pa.RecordBatch, indexes: Sequence[int], schema: Schema | None = None) -> list[Any]:
    """As `json_row`, for several rows of a batch; `schema` has the logical types of the columns."""
    rows = batch.take(pa.array(indexes, pa.int64()))
    return [json.loads(text, parse_float=_exact) for text in json_rows(rows, schema, exact=True)]


def _exact(digits: str) -> float | str:
    number = float(digits)
    return number if Decimal(repr(number)) == Decimal(digits) else digits


def json_values(array: pa.Array, logical: DataType | None = None, *, exact: bool = False) -> list[str | None]:
    """Each value as JSON text; None for null."""
    plain, render = _prepare(array, logical, exact=exact)
    try:
        values = plain.to_pylist()
    except (OverflowError, ValueError):  # a time inside of a list, struct or map: Python's years end at 9999
        values = plain.cast(_with_numbers(plain.type)).to_pylist()
        render = _renderer(plain.type, logical, exact=exact, numbers=True)
    return [None if value is None else render(value) for value in values]


def _column(array: pa.Array, logical: DataType | None, *, exact: bool) -> Iterable[str]:
    return ["null" if value is None else value for value in json_values(array, logical, exact=exact)]


def _prepare(array: pa.Array, logical: DataType | None, *, exact: bool) -> tuple[pa.Array, Render]:
    """The array cast to a type with fast and lossless Python values, and the function that renders such a value."""
    type_ = array.type
    if pa.types.is_integer(type_):
        return array, str
    if pa.types.is_boolean(type_):
        return array, lambda value: "true" if value else "false"
    if pa.types.is_float32(type_) or pa.types.is_float16(type_):
        # As text: a double of the same value would have digits that the short float does not have.
        return array.cast(pa.string()), _exact_number if exact else _number
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_time(type_):
        return iso_texts(array), lambda value: f'"{value}"'  # as text: Python's years end at 9999
    return array, _renderer(type_, logical, exact=exact)


def iso_texts(array: pa.Array) -> pa.Array:
    """Dates and times as ISO text, with `Z` if the type has a zone; no fraction if it is zero."""
    text = pc.replace_substring(time_texts(array), " ", "T", max_replacements=1)
    return pc.replace_substring_regex(text, _ZERO_FRACTION, r"\1")


def _number(text: str) -> str:
    if not math.isfinite(float(text)):
        return "null"
    return text if "." in text or "e" in text else f"{text}.0"  # like a double: a whole number is a float too


def _exact_number(text: str) -> str:
    return _number(text) if math.isfinite(float(text)) else f'"{text}"'


def _with_numbers(type_: pa.DataType) -> pa.DataType:
    """The type with numbers in place of dates and timestamps."""
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_timestamp(type_) or pa.types.is_date64(type_):
        return pa.int64()
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(_with_numbers(f.type)) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(_with_numbers(type_.key_type), _with_numbers(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(_with_numbers(type_.value_type))
    return type_


def _iso_number(number: int, type_: pa.DataType) -> str:
    return re.sub(_ZERO_FRACTION, r"\1", time_text(number, type_).replace(" ", "T", 1))


def _renderer(type_: pa.DataType, logical: DataType | None, *, exact: bool, numbers: bool = False) -> Render:
    """A function that writes the Python values that pyarrow gives for this type; `numbers` as in `_with_numbers`."""
    if numbers and (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        return lambda value: f'"{_iso_number(value, type_)}"'
    if pa.types.is_struct(type_):
        inner = {f.name: f.type for f in logical.fields} if logical else {}
        fields = [
            (
                f"{escape(f.name)}:",
                f.name,
                _nullable(_renderer(f.type, inner.get(f.name), exact=exact, numbers=numbers)),
            )
            for f in type_
        ]
        return lambda value: "{" + ",".join(prefix + render(value[name]) for prefix, name, render in fields) + "}"
    if pa.types.is_map(type_):
        item = _nullable(_renderer(type_.item_type, logical.item if logical else None, exact=exact, numbers=numbers))
        return lambda value: "{" + ",".join(f"{escape(str(k))}:{item(v)}" for k, v in value) + "}"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        element = _nullable(
            _renderer(type_.value_type, logical.item if logical else None, exact=exact, numbers=numbers)
        )
        return lambda value: "[" + ",".join(map(element, value)) + "]"
    if logical is not None and logical.kind == "decimal" and logical.wide:
        return str
    if pa.types.is_boolean(type_):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(type_):
        return str
    if pa.types.is_floating(type_):
        return lambda value: _exact_number(repr(value)) if exact else _number(repr(value))
    if pa.types.is_decimal(type_):
        return lambda value: format(value, "f")
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return escape
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return lambda value: f'"{value.hex()}"'
    if pa.types.is_duration(type_):
        return lambda value: str(value // timedelta(microseconds=1))
    if pa.types.is_temporal(type_):
        return lambda value: f'"{value.isoformat().replace("+00:00", "Z")}"'
    return lambda value: escape(str(value))


def _nullable(render: Render) -> Render:
    return lambda value: "null" if value is None else render(value)
