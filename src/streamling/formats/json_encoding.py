"""Rows as JSON, all rows at once: the same bytes as `json.json_rows`, without Python objects for the usual types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.json import escape, iso_texts, json_values
from streamling.plan.types import DataType, Schema

_ESCAPED = np.zeros(256, bool)
_ESCAPED[:32] = _ESCAPED[[ord('"'), ord("\\")]] = True
_CONTROL = np.zeros(256, bool)
_CONTROL[:32] = True
_PLAIN = (1e-4, 1e9)
_REPLACEMENTS = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def encode_json(batch: pa.RecordBatch, schema: Schema) -> pa.Array:
    """One JSON object per row, as a column of text; `schema` has the logical types."""
    types = {field.name: field.type for field in schema}
    parts: list[Any] = []
    literal = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        literal += f"{escape(name)}:"
        before, texts, after = _texts(column, types.get(name))
        parts += [pa.scalar(literal + before), texts]
        literal = after + ","
    parts.append(pa.scalar(literal.rstrip(",") + "}"))
    return pc.binary_join_element_wise(*parts, "")


def plain_texts(array: pa.Array, type_: DataType | None) -> pa.Array:
    """Each value as text: that of its JSON, without quotes. Nulls stay."""
    if pa.types.is_string(array.type):
        return array
    quote, texts, _ = _quoted_texts(array, type_)
    if quote or not _may_be_quoted(array.type):
        return texts
    return pa.array([None if text is None else text.strip('"') for text in texts.to_pylist()], pa.string())


def key_texts(batch: pa.RecordBatch, key: Sequence[str], schema: Schema) -> pa.Array:
    """The values of the key columns as text, joined with `:`; `NULL` for null."""
    types = {field.name: field.type for field in schema}
    texts = [plain_texts(batch.column(name), types[name]) for name in key]
    return pc.binary_join_element_wise(*texts, ":", null_handling="replace", null_replacement="NULL")


def _may_be_quoted(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_))


def _texts(array: pa.Array, type_: DataType | None) -> tuple[str, pa.Array, str]:
    """What precedes every value, the values, and what follows. If there are nulls, only the values."""
    before, texts, after = _quoted_texts(array, type_)
    if not texts.null_count:
        return before, texts, after
    if before:
        texts = pc.binary_join_element_wise(pa.scalar(before), texts, pa.scalar(after), "")
    return "", texts.fill_null("null"), ""


def _quoted_texts(array: pa.Array, type_: DataType | None) -> tuple[str, pa.Array, str]:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "", array.cast(pa.string()), ""
    if pa.types.is_string(kind):
        is_number = type_ is not None and type_.kind == "decimal" and type_.wide
        return ("", array, "") if is_number else ('"', _escape_texts(array), '"')
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return '"', iso_texts(array), '"'
    if pa.types.is_float64(kind) and _are_plain(array):
        texts = array.cast(pa.string())
        is_whole = pc.invert(pc.match_substring(texts, "."))
        if pc.any(is_whole).as_py():
            texts = pc.if_else(is_whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
        return "", texts, ""
    if pa.types.is_decimal(kind):
        texts = array.cast(pa.string())
        if not pc.any(pc.match_substring(texts, "E")).as_py():  # Arrow writes small numbers with an exponent
            return "", texts, ""
    return "", pa.array(json_values(array, type_), pa.string()), ""


def _are_plain(array: pa.Array) -> bool:
    """Whether Arrow writes these numbers with the same digits as Python, neither of them with an exponent."""
    size = pc.abs(array)
    plain = pc.or_(pc.and_(pc.greater_equal(size, _PLAIN[0]), pc.less(size, _PLAIN[1])), pc.equal(size, 0))
    return bool(pc.all(plain, min_count=0).as_py())


def _escape_texts(array: pa.Array) -> pa.Array:
    if not _has(array, _ESCAPED):
        return array
    for character, escaped in _REPLACEMENTS:
        array = pc.replace_substring(array, character, escaped)
    if not _has(array, _CONTROL):
        return array
    return pa.array([None if t is None else _escape_rest(t) for t in array.to_pylist()], pa.string())


def _escape_rest(text: str) -> str:
    """The other control characters of a text whose quotes are escaped already."""
    if text.isprintable():
        return text
    return "".join(escape(c)[1:-1] if c < " " else c for c in text)


def _has(array: pa.Array, characters: Any) -> bool:
    """Whether one of these bytes is in a column of text; bytes under nulls count too."""
    data = array.buffers()[2]
    if data is None or not len(array):
        return False
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    first, end = int(offsets[array.offset]), int(offsets[array.offset + len(array)])
    return bool(characters[np.frombuffer(data, np.uint8)[first:end]].any())
