"""Casts Avro values from the arrays of the Arrow project's reader to the columns of a pipeline.

The reader gets a schema without the logical types that it cannot read, or reads in another way than we do; their values
arrive as the underlying type and are cast here. It does not check the range of values, such as the digits of a decimal
or a time after midnight. Values out of range raise ArrowInvalid here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import arrow_type
from streamling.formats.avro import has_known_logical_type, is_byteless
from streamling.plan.types import DECIMAL256_DIGITS, DataType

Json = Any
_INNER, _LOGICAL = ("items", "values"), ("logicalType", "precision", "scale")
_KNOWN = ("type", "name", "fields", "symbols", "size", *_INNER, *_LOGICAL)
_DURATION = np.dtype([("months", "<u4"), ("days", "<u4"), ("ms", "<u4")])
_DAY_MS = 24 * 3600 * 1000
_DECIMAL256_BYTES = 32
_LONGEST_MS = (2**63 - 1) // 1000
# Python refuses to write longer integers as text, because the time per digit grows with their length.
_INT_BITS = 4096
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
# Digits and dashes of UUIDs, by one and by two characters: there are half as many pairs to look at.
_LETTERS = np.zeros(256, np.uint8)
_LETTERS[list(b"0123456789abcdef")], _LETTERS[ord("-")] = 1, 2
_PAIRS = (_LETTERS[:, None] * 4 + _LETTERS).ravel()
_UUID_BYTES = 36
_UUID_PAIRS = _PAIRS[np.frombuffer(b"00000000-0000-0000-0000-000000000000", np.uint16)]
_ANY_UUID = re.compile(
    r"(?:urn:uuid:)?\{?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?",
    re.IGNORECASE | re.ASCII,
)


def decoding_schema(schema: Json) -> Json:
    """The schema that the Arrow reader gets: only what decides how bytes are decoded.

    Fields whose values have no bytes are left out.
    """
    if isinstance(schema, list):
        return [decoding_schema(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("type"), dict | list):
        return decoding_schema(schema["type"])
    decoding = {k: decoding_schema(value) if k in _INNER else value for k, value in schema.items() if k in _KNOWN}
    if "fields" in decoding:
        fields = [field for field in schema["fields"] if not is_byteless(field["type"])]
        decoding["fields"] = [{"name": field["name"], "type": decoding_schema(field["type"])} for field in fields]
    if not _has_arrow_logical_type(decoding):
        decoding = {key: value for key, value in decoding.items() if key not in _LOGICAL}
    return decoding


def _has_arrow_logical_type(schema: Json) -> bool:
    """Whether the Arrow reader decodes the logical type of a schema as we do."""
    if not has_known_logical_type(schema):
        return False
    if schema["logicalType"] != "decimal":
        return True
    return int(schema["precision"]) <= DECIMAL256_DIGITS and schema.get("size", 0) <= _DECIMAL256_BYTES


def cast_values(column: pa.Array, type_: DataType) -> pa.Array:
    """A column of the Arrow reader as the Arrow type of `type_`, or as a type that Arrow can cast to it."""
    if pa.types.is_union(column.type):
        return _union(column, type_) if column.type.num_fields > 1 else cast_values(split(column)[0], type_)
    match type_.kind:
        case "decimal" | "decimal_arb" if not pa.types.is_decimal(column.type):
            return _decimals(column, type_)
        case "decimal":
            column.validate(full=True)
        case "time32" | "time64":
            return _within_a_day(column)
        case "duration":
            return _durations(column)
        case "struct":
            return _struct(column, type_)
        case "list" if type_.item:
            values = cast_values(column.values, type_.item)
            return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
        case "map" if type_.item:
            items = cast_values(column.items, type_.item)
            return pa.MapArray.from_arrays(column.offsets, column.keys, items, mask=column.is_null())
    return column


def _struct(column: pa.Array, type_: DataType) -> pa.Array:
    children = []
    for field in type_.fields:
        index = column.type.get_field_index(field.name)
        children.append(cast_values(column.field(index), field.type) if index >= 0 else _byteless(column, field.type))
    return pa.StructArray.from_arrays(children, [f.name for f in type_.fields], mask=column.is_null())


def _byteless(around: pa.Array, type_: DataType) -> pa.Array:
    """Values that the reader did not decode because they have no bytes; they are valid where `around` is."""
    if type_.kind != "struct":
        return pa.nulls(len(around), arrow_type(type_))
    if not type_.fields:
        return pa.array([{} if valid else None for valid in around.is_valid().to_pylist()], pa.struct([]))
    children = [_byteless(around, field.type) for field in type_.fields]
    return pa.StructArray.from_arrays(children, [f.name for f in type_.fields], mask=around.is_null())


def split(column: pa.Array) -> list[pa.Array]:
    """The values of a union by branch, without the null branch; null where the value is of another branch."""
    kinds = [column.type.field(index).type for index in range(column.type.num_fields)]
    return [
        column.field(index).take(pc.if_else(pc.equal(column.type_codes, index), column.offsets, None))
        for index, kind in enumerate(kinds)
        if not pa.types.is_null(kind)
    ]


def _union(column: pa.Array, type_: DataType) -> pa.Array:
    """A struct with a field per branch, of which one has a value; null where the branch is null."""
    kinds = [column.type.field(index).type for index in range(column.type.num_fields)]
    null = next((index for index, kind in enumerate(kinds) if pa.types.is_null(kind)), None)
    children = [cast_values(part, field.type) for part, field in zip(split(column), type_.fields, strict=True)]
    mask = pc.equal(column.type_codes, null) if null is not None else pa.repeat(False, len(column))
    return pa.StructArray.from_arrays(children, [f.name for f in type_.fields], mask=mask)


def _durations(column: pa.Array) -> pa.Array:
    """Days count as 24 hours; months have no fixed length, so a value with months cannot be cast."""
    filled = b"".join(value if value is not None else bytes(_DURATION.itemsize) for value in column.to_pylist())
    parts = np.frombuffer(filled, _DURATION)
    if parts["months"].any():
        raise pa.ArrowInvalid("a duration with months has no fixed length")
    milliseconds = parts["days"].astype(np.int64) * _DAY_MS + parts["ms"]
    if (milliseconds > _LONGEST_MS).any():
        raise pa.ArrowInvalid("a duration is longer than 292,000 years")
    return pa.array(milliseconds * 1000, pa.duration("us"), mask=column.is_null().to_numpy(zero_copy_only=False))


def _within_a_day(column: pa.Array) -> pa.Array:
    short = pa.types.is_time32(column.type)
    day, unit = (_DAY_MS, "milliseconds") if short else (_DAY_MS * 1000, "microseconds")
    least, most = pc.min_max(column.view(pa.int32() if short else pa.int64())).as_py().values()
    if least is not None and not 0 <= least <= most < day:
        raise pa.ArrowInvalid(f"{least if least < 0 else most} {unit} after midnight is not a time of day")
    return column


def canonical_uuids(column: pa.Array) -> pa.Array:
    """UUIDs as text in lower case with dashes. Raises ArrowInvalid for a text that is not a UUID."""
    if _are_canonical(column):
        return column
    return pa.array([None if text is None else _canonical_uuid(text) for text in column.to_pylist()], column.type)


def _are_canonical(uuids: pa.Array) -> bool:
    lengths, count = pc.min_max(pc.binary_length(uuids)).as_py(), len(uuids) - uuids.null_count
    if not count:
        return True
    if (lengths["min"], lengths["max"]) != (_UUID_BYTES, _UUID_BYTES):
        return False
    _, offsets, data = uuids.buffers()
    first, end = np.frombuffer(offsets, np.int32)[[uuids.offset, uuids.offset + len(uuids)]]
    if end - first != count * _UUID_BYTES:  # there are bytes under a null
        return False
    pairs = np.frombuffer(data, np.uint16, count * len(_UUID_PAIRS), first)
    return bool((np.take(_PAIRS, pairs).reshape(count, -1) == _UUID_PAIRS).all())


def _canonical_uuid(text: str) -> str:
    uuid = _ANY_UUID.fullmatch(text)
    if uuid is None:
        raise pa.ArrowInvalid(f"'{text[:80]}' is not a valid UUID")
    return "-".join(uuid.groups()).lower()


def _decimals(column: pa.Array, type_: DataType) -> pa.Array:
    texts, carrier = decimal_texts(column.to_pylist(), type_), arrow_type(type_)
    if pa.types.is_string(carrier):
        return pa.array(texts, carrier)
    return pa.array([None if text is None else Decimal(text) for text in texts], carrier)


def decimal_texts(values: Sequence[bytes | None], type_: DataType) -> list[str | None]:
    """Two's complement numbers as canonical decimal text. Raises ArrowInvalid for a number with too many digits."""
    precision, scale = type_.precision or 0, type_.scale or 0
    numbers = [None if value is None else int.from_bytes(value, "big", signed=True) for value in values]
    limit = _power_of_ten(precision)
    if not all(-limit < number < limit for number in numbers if number is not None):
        raise pa.ArrowInvalid(f"a value has more than the {precision} digits of its type")
    return [None if number is None else _digits(number, scale) for number in numbers]


def _digits(number: int, scale: int) -> str:
    if not number or not scale:
        return _write(number)
    text = _write(abs(number)).zfill(scale + 1)
    return f"{'-' if number < 0 else ''}{text[:-scale]}.{text[-scale:]}"


def _write(number: int) -> str:
    return str(number if number.bit_length() <= _INT_BITS else _decimal(number))


def _decimal(number: int) -> Decimal:
    """A number of any length, by halves: multiplication of decimals with many digits is fast."""
    if number.bit_length() <= _INT_BITS:
        return Decimal(number)
    bits = 1 << (number.bit_length() - 1).bit_length() - 1
    high, low = divmod(number, 1 << bits)
    return _EXACT.add(_EXACT.multiply(_decimal(high), _power_of_two(bits)), _decimal(low))


@cache
def _power_of_two(bits: int) -> Decimal:
    if bits <= _INT_BITS:
        return Decimal(1 << bits)
    return _EXACT.multiply(_power_of_two(bits // 2), _power_of_two(bits // 2))


@cache
def _power_of_ten(exponent: int) -> int:
    return int(10**exponent)
