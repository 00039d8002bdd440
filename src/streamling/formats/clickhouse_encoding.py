"""Columns as Arrow arrays that ClickHouse stores as they are.

The server casts what it gets to the type of the column, and that cuts numbers and times that do not fit without a
word. So an array has the very type that ClickHouse has: a value that does not fit is found here, with its column. Only
text for types that ClickHouse parses (UUID, IPv4, IPv6, Enum, JSON) is left to the server, which rejects what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.clickhouse_targets import Target
from streamling.formats.json_encoding import plain_texts
from streamling.plan.types import DataType

if TYPE_CHECKING:
    Bytes = np.ndarray[Any, Any]

Encode = Callable[[pa.Array], pa.Array]
"""Raises CannotEncode, or pa.ArrowInvalid, if a value does not fit."""

_INTEGERS = {
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
}
_WIDE_BYTES = {"Int128": 16, "UInt128": 16, "Int256": 32, "UInt256": 32}
_FLOATS = {"Float32": pa.float32(), "Float64": pa.float64()}
# Days since 1970.
_DAYS = {"Date": (0, 65_535), "Date32": (-25_567, 120_529)}
_PARSED_BY_SERVER = frozenset({"Enum", "Enum8", "Enum16", "UUID", "IPv4", "IPv6", "JSON"})
_SMALL = frozenset({"int8", "int16", "uint8", "uint16"})
_EXACT_IN_FLOAT = {"Float32": _SMALL, "Float64": _SMALL | {"int32", "uint32"}}
_WHOLE = _SMALL | {"int32", "int64", "uint32", "uint64"}
_SECONDS = frozenset({"int32", "int64", "uint32", "uint64"})
_TEXTS = frozenset({"string", "interval"})
_NESTED = frozenset({"list", "map", "struct"})
_DAY_S = 86_400
# Of DateTime64: from 1900 to the end of 2299.
_FIRST_S, _END_S = -25_567 * _DAY_S, 120_530 * _DAY_S
_UNITS = ("s", "ms", "us", "ns")
_DECIMAL256 = pa.decimal256(76, 0)
_DECIMAL256_DIGITS = 76


class Unfit(ValueError):
    """No value of a type fits a column, or not every value can be told to fit."""


class CannotEncode(ValueError):
    """A value does not fit its column."""


def make_encoder(type_: DataType, target: Target) -> Encode:
    """Encodes columns of a logical type for a column of ClickHouse. Raises Unfit."""
    encode = _encoder(type_, target)
    if target.nullable:
        return encode

    def encode_without_nulls(values: pa.Array) -> pa.Array:
        if values.null_count:
            raise CannotEncode(f"null does not fit {target}")
        return encode(values)

    return encode_without_nulls


def bad_values(values: pa.Array, encode: Encode) -> dict[int, str]:
    """The values that cannot be encoded, by index, and why: found by halves."""
    try:
        encode(values)
    except (CannotEncode, pa.ArrowInvalid) as error:
        if len(values) == 1:
            return {0: str(error)}
    else:
        return {}
    middle = len(values) // 2
    first, second = bad_values(values.slice(0, middle), encode), bad_values(values.slice(middle), encode)
    return first | {middle + index: why for index, why in second.items()}


def _encoder(type_: DataType, target: Target) -> Encode:
    name, kind = target.name, type_.kind
    encode: Encode | None = None
    if kind == "null":
        encode = _as_it_is
    elif name in _INTEGERS:
        encode = _integer(type_, _INTEGERS[name])
    elif name in _WIDE_BYTES:
        encode = _wide_integer(type_, target)
    elif name in _FLOATS and (kind.startswith("float") or kind in _EXACT_IN_FLOAT[name]):
        encode = None if (name, kind) == ("Float32", "float64") else _cast(_FLOATS[name])
    elif name == "Bool" and kind == "boolean":
        encode = _as_it_is
    elif name == "String":
        encode = _text(type_)
    elif name == "FixedString" and (kind == "string" or (kind == "binary" and type_.length in (None, *target.numbers))):
        encode = _fixed(target.numbers[0])
    elif name in _DAYS and kind in ("date32", "date64"):
        encode = _days(target)
    elif name in ("DateTime", "DateTime64"):
        encode = _time(type_, target)
    elif name == "Decimal":
        encode = _decimal(type_, target)
    elif name in _PARSED_BY_SERVER and kind in _TEXTS:
        encode = _as_it_is
    else:
        encode = _nested(type_, target)
    if encode is None:
        raise Unfit(f"it is {target}, and the input is {type_}")
    return encode


def _as_it_is(values: pa.Array) -> pa.Array:
    return values


def _cast(type_: pa.DataType) -> Encode:
    return lambda values: values if values.type == type_ else values.cast(type_)


# Numbers


def _integer(type_: DataType, wire: pa.DataType) -> Encode | None:
    if type_.kind in _WHOLE or (type_.kind == "decimal" and type_.scale == 0 and not type_.wide):
        return _cast(wire)
    if type_.kind == "boolean":
        return lambda values: values.cast(pa.uint8()).cast(wire)
    if type_.kind == "duration":
        return lambda values: values.cast(pa.int64()).cast(wire)
    if type_.wide and type_.scale == 0:
        return lambda values: values.cast(_DECIMAL256).cast(wire)
    return None


def _decimal(type_: DataType, target: Target) -> Encode | None:
    precision, scale = target.numbers
    wire = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if type_.kind in _WHOLE and type_.kind != "uint64":
        # Arrow asks for room for any value of the type; the second cast looks at the values.
        return lambda values: values.cast(pa.decimal128(19, 0)).cast(wire)
    if type_.kind in ("decimal", "decimal_arb", "uint64"):
        return _cast(wire)
    return None


def _wide_integer(type_: DataType, target: Target) -> Encode | None:
    """The server has them as little-endian two's complement, and so has Arrow the digits of its decimals."""
    size, signed = _WIDE_BYTES[target.name], target.name.startswith("Int")
    texts = type_.wide and type_.scale == 0
    if not texts and type_.kind not in _WHOLE and not (type_.kind == "decimal" and type_.scale == 0):
        return None

    def encode(values: pa.Array) -> pa.Array:
        bytes_, negative = _wide_texts(values, signed=signed) if texts else _wide_numbers(values)
        if negative and not signed:
            raise CannotEncode(f"a negative number does not fit {target}")
        if size == 16:
            bytes_ = _lower_half(bytes_, target, signed=signed)
        array = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(size), len(values), [None, pa.py_buffer(np.ascontiguousarray(bytes_))]
        )
        return pc.if_else(values.is_valid(), array, pa.scalar(None, pa.binary(size))) if values.null_count else array

    return encode


def _wide_numbers(values: pa.Array) -> tuple[Bytes, bool]:
    """32 bytes for each number, and whether one of them is negative."""
    if pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(19, 0))
    bytes_ = _digits(values.cast(_DECIMAL256))
    return bytes_, bool((bytes_[:, -1] & 0x80).any())


def _wide_texts(texts: pa.Array, *, signed: bool) -> tuple[Bytes, bool]:
    long = pc.greater(pc.utf8_length(texts), _DECIMAL256_DIGITS).fill_null(False)
    bytes_ = _digits(pc.if_else(long, pa.scalar(None, pa.string()), texts).cast(_DECIMAL256))
    negative = bool(pc.any(pc.starts_with(texts, "-"), min_count=0).as_py())
    for index in pc.indices_nonzero(long).to_pylist():  # more digits than Arrow's decimals have
        text = texts[index].as_py()
        try:
            bytes_[index] = np.frombuffer(int(text).to_bytes(32, "little", signed=signed), np.uint8)
        except OverflowError:
            raise CannotEncode(f"{text} does not fit 256 bits") from None
    return bytes_, negative


def _digits(decimals: pa.Array) -> Bytes:
    """The 32 bytes of each decimal; zeros for null."""
    buffer, start = decimals.buffers()[1], decimals.offset
    bytes_ = np.frombuffer(buffer, np.uint8)[start * 32 : (start + len(decimals)) * 32].reshape(-1, 32).copy()
    if decimals.null_count:
        bytes_[np.asarray(decimals.is_null().cast(pa.uint8()), bool)] = 0
    return bytes_


def _lower_half(bytes_: Bytes, target: Target, *, signed: bool) -> Bytes:
    lower, upper = bytes_[:, :16], bytes_[:, 16:]
    sign = np.where((lower[:, -1] & 0x80).astype(bool) & signed, 0xFF, 0).astype(np.uint8)
    if (upper != sign[:, None]).any():
        raise CannotEncode(f"a number does not fit {target}")
    return lower


# Bytes


def _text(type_: DataType) -> Encode | None:
    """Every plain value has a text; that of a nested one would have to be told apart from other JSON."""
    if type_.kind in _TEXTS or type_.kind == "binary":
        return _as_it_is
    if type_.kind.startswith("float"):
        return _cast(pa.string())
    return None if type_.kind in _NESTED else lambda values: plain_texts(values, type_)


def _fixed(length: int) -> Encode:
    def encode(values: pa.Array) -> pa.Array:
        lengths = pc.min_max(pc.binary_length(values.cast(pa.binary())))
        if {lengths["min"].as_py(), lengths["max"].as_py()} - {length, None}:
            raise CannotEncode(f"it does not have {length} bytes")
        return values.cast(pa.binary()).cast(pa.binary(length))

    return encode


# Times


def _days(target: Target) -> Encode:
    first, last = _DAYS[target.name]

    def encode(values: pa.Array) -> pa.Array:
        _check_range(values.cast(pa.int32()), first, last, target)
        return values

    return encode


def _check_range(numbers: pa.Array, first: int, last: int, target: Target) -> None:
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and (low < first or high > last):
        raise CannotEncode(f"it is outside the range of {target}")


def _time(type_: DataType, target: Target) -> Encode | None:
    read = _time_reader(type_)
    if read is None:
        return None
    digits = target.numbers[0] if target.name == "DateTime64" and target.numbers else 0
    unit = -(-digits // 3)
    wire = pa.timestamp(_UNITS[unit])
    ticks = 1000**unit
    # Half of the range of DateTime64 is beyond 64 bits of nanoseconds.
    first, last = (
        (_FIRST_S * ticks, min(_END_S * ticks - 1, 2**63 - 1)) if target.name == "DateTime64" else (0, 2**32 - 1)
    )
    rest = 10 ** (3 * unit - digits)

    def encode(values: pa.Array) -> pa.Array:
        times = read(values).cast(wire)
        numbers = times.cast(pa.int64())
        _check_range(numbers, first, last, target)
        if rest > 1 and (np.asarray(numbers.fill_null(0)) % rest).any():
            raise CannotEncode(f"it has more digits than {target}")
        return times if target.name == "DateTime64" else numbers.cast(pa.uint32())

    return encode


def _time_reader(type_: DataType) -> Encode | None:
    """Whole numbers are seconds since 1970; a time of day is one of 1970-01-01."""
    match type_.kind:
        case "timestamp" | "time32" | "time64":
            return lambda values: values.cast(pa.int64()).cast(pa.timestamp("us"))
        case "date32" | "date64":
            return lambda values: values.cast(pa.timestamp("s"))
        case kind if kind in _SECONDS:
            return lambda values: values.cast(pa.int64()).cast(pa.timestamp("s"))
    return None


# Nested


def _nested(type_: DataType, target: Target) -> Encode | None:
    match type_, target.name:
        case DataType(kind="list", item=DataType() as item), "Array":
            return _list(make_encoder(item, target.parts[0]))
        case DataType(kind="map", key=DataType() as key, item=DataType() as item), "Map":
            return _map(make_encoder(key, target.parts[0]), make_encoder(item, target.parts[1]))
        case DataType(kind="struct"), "Tuple":
            return _struct(type_, target)
    return None


def _list(encode: Encode) -> Encode:
    def encode_list(values: pa.Array) -> pa.Array:
        _refuse_null(values)
        offsets, (items,) = _children(values, [values.values])
        return pa.ListArray.from_arrays(offsets, encode(items))

    return encode_list


def _map(encode_key: Encode, encode_item: Encode) -> Encode:
    def encode_map(values: pa.Array) -> pa.Array:
        _refuse_null(values)
        offsets, (keys, items) = _children(values, [values.keys, values.items])
        return pa.MapArray.from_arrays(offsets, encode_key(keys), encode_item(items))

    return encode_map


def _children(values: pa.Array, children: Sequence[pa.Array]) -> tuple[pa.Array, list[pa.Array]]:
    """The offsets of lists or maps, from 0, and what belongs to them."""
    offsets = values.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, pa.scalar(start, offsets.type)), [c.slice(start, end - start) for c in children]


def _struct(type_: DataType, target: Target) -> Encode:
    names = [field.name for field in type_.fields]
    if target.names == tuple(str(number) for number in range(1, len(names) + 1)):
        places = list(range(len(names)))  # a tuple without names: by position
    elif set(names) == set(target.names):
        places = [names.index(name) for name in target.names]
    else:
        raise Unfit(f"it is {target}, and the input is {type_}")
    encoders = [make_encoder(type_.fields[p].type, part) for p, part in zip(places, target.parts, strict=True)]

    def encode_struct(values: pa.Array) -> pa.Array:
        _refuse_null(values)
        members = values.flatten()
        encoded = [encode(members[place]) for place, encode in zip(places, encoders, strict=True)]
        return pa.StructArray.from_arrays(encoded, names=list(target.names))

    return encode_struct


def _refuse_null(values: pa.Array) -> None:
    """Also where a Nullable tuple would take it: the members of a null have no values."""
    if values.null_count:
        raise CannotEncode("null, and ClickHouse has no null for lists, maps and records")
