"""Rows as JSON objects of limited length, for people: long values are cut, and columns that do not fit are left out.

A row may have megabytes, and most of it would be cut: large values are cut before they become text. Digits are never
changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamling.formats.json import escape, json_values
from streamling.plan.types import DataType, Schema

LEFT_OUT = "_truncated"
"""The key that says how much of a row is not shown."""
# A text that is cut, and any other value: enough to recognize it.
_TEXT = 1000
_VALUE = 8000
# To write a megabyte of lists and structs takes 0.1 s: larger values are not written at all.
_LARGE_BYTES = 1 << 20


def json_excerpts(batch: pa.RecordBatch, schema: Schema, limit: int) -> list[str]:
    """As `json_rows`, each row in about `limit` characters."""
    types = {field.name: field.type for field in schema}
    names = [f"{escape(name)}:" for name in batch.schema.names]
    columns = [_values(batch.column(name), types.get(name)) for name in batch.schema.names]
    return [_excerpt(names, row, limit) for row in zip(*columns, strict=True)]


def _values(column: pa.Array, logical: DataType | None) -> list[str]:
    if column.nbytes > _LARGE_BYTES:
        return [_value(column.slice(index, 1), logical) for index in range(len(column))]
    try:
        texts = json_values(column, logical)
    except UnicodeDecodeError:  # Spark casts binary to text without a check
        flat = None if pa.types.is_nested(column.type) else column.cast(pa.binary())
        texts = [escape("(not valid UTF-8)")] * len(column) if flat is None else list(map(_replaced, flat.to_pylist()))
    return ["null" if text is None else text for text in texts]


def _replaced(content: bytes | None) -> str | None:
    return None if content is None else escape(content.decode("utf-8", "replace"))


def _value(column: pa.Array, logical: DataType | None) -> str:
    """The only value of a column as JSON. A large one is cut before it becomes text."""
    if column.nbytes <= _LARGE_BYTES:
        (text,) = _values(column, logical)
        return text
    if pa.types.is_nested(column.type):
        return escape(_cut("", column.nbytes, "bytes"))
    content = column[0].as_buffer()
    head = content[: 4 * _TEXT].to_pybytes()  # a character has four bytes at most
    binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    text = head.hex() if binary else head.decode("utf-8", "ignore")
    return escape(_cut(text[:_TEXT], content.size, "bytes"))


def _excerpt(names: Sequence[str], values: Sequence[str], limit: int) -> str:
    if _length(names, values) > limit:
        values = [_shorten(value, min(_TEXT, limit // 4)) for value in values]
    shown = len(values)
    while shown and _length(names[:shown], values[:shown]) > limit:
        shown -= max(1, shown // 16)
    members = [name + value for name, value in zip(names[:shown], values[:shown], strict=True)]
    if shown < len(values):
        members.append(f'"{LEFT_OUT}":"{len(values) - shown:,} more columns"')
    return "{" + ",".join(members) + "}"


def _length(names: Sequence[str], values: Sequence[str]) -> int:
    return sum(map(len, names)) + sum(map(len, values)) + len(names)


def _cut(head: str, size: int, unit: str) -> str:
    return f"{head}... ({size:,} {unit})"


class _Number(str):
    """The digits of a number, as they are written."""


def _shorten(value: str, length: int) -> str:
    """A value of JSON with its long texts cut; if it is still long, it becomes text."""
    if len(value) <= length:
        return value
    text = _write(json.loads(value, parse_int=_Number, parse_float=_Number), length)
    return text if len(text) <= max(length, _VALUE) else escape(_cut(text[:length], len(text), "characters"))


def _write(value: Any, length: int) -> str:
    match value:
        case _Number():
            return str(value)
        case str():
            return escape(value if len(value) <= length else _cut(value[:length], len(value), "characters"))
        case dict():
            return "{" + ",".join(f"{escape(key)}:{_write(inner, length)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(_write(inner, length) for inner in value) + "]"
        case _:
            return json.dumps(value)
