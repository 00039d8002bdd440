"""Arrow columns to Avro, all rows at once: each column becomes parts, arrays of bytes that are joined row by row.

Nothing here looks at single values, except decimals of more than 38 digits, which Spark carries as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.plan.types import DataType

Part = Any
"""An array of bytes, one value per row, or a scalar that is the same for all rows."""
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class CannotEncode(ValueError):
    """A value that its schema cannot hold. `path` is that of the column."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"column '{path}' {message}")
        self.path = path


class Encoder(Protocol):
    def parts(self, array: pa.Array) -> list[Part]:
        """The parts of each value; `array` has no nulls. Raises CannotEncode."""


def join(parts: Sequence[Part]) -> pa.Array:
    """The parts of each row as one value; at least one of them is an array."""
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, b"")


def binary_array(offsets: Any, data: Any) -> pa.Array:
    """Values between the offsets of one buffer."""
    offsets = np.ascontiguousarray(offsets, np.int32)
    buffers = [None, pa.py_buffer(offsets), data if isinstance(data, pa.Buffer) else pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def encode_longs(values: Any) -> pa.Array:
    """Integers of up to 64 bits as Avro writes them: zigzag, then seven bits per byte."""
    values = np.asarray(values, np.int64)
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = int(zigzag.max()) if len(zigzag) else 0
    width = max(1, -(-largest.bit_length() // 7))
    if width == 1:
        return _fixed_width(zigzag.astype(np.uint8), 1)
    lengths = np.ones(len(zigzag), np.int64)
    for more in range(1, width):
        lengths += zigzag >= np.uint64(1 << 7 * more)
    digits = np.empty((len(zigzag), width), np.uint8)
    for index in range(width):
        digits[:, index] = (zigzag >> np.uint64(7 * index)).astype(np.uint8) | 0x80
    digits[np.arange(len(zigzag)), lengths - 1] &= 0x7F
    return binary_array(_offsets(lengths), digits[np.arange(width) < lengths[:, None]])


def _fixed_width(data: Any, width: int) -> pa.Array:
    data = np.ascontiguousarray(data)
    count = data.nbytes // width
    return binary_array(np.arange(count + 1) * width, data)


def _offsets(lengths: Any) -> Any:
    return np.concatenate(([0], np.cumsum(lengths)))


def _numbers(array: pa.Array, type_: pa.DataType) -> Any:
    return np.asarray(array.cast(type_))


@dataclass(frozen=True, slots=True)
class Longs:
    """int and long. `factor` and `divisor` change the unit of a time."""

    path: str
    factor: int = 1
    divisor: int = 1

    def parts(self, array: pa.Array) -> list[Part]:
        if pa.types.is_date(array.type):
            array = array.cast(pa.int32())
        try:
            values = _numbers(array, pa.int64())
        except pa.ArrowInvalid as error:
            raise CannotEncode(self.path, f"has a value that is out of range for an Avro long: {error}") from error
        if self.divisor != 1:
            values = values // self.divisor
        if self.factor != 1:
            limit = (2**63 - 1) // self.factor
            if len(values) and not -limit <= values.min() <= values.max() <= limit:
                raise CannotEncode(self.path, "has a time that is out of range for nanoseconds")
            values = values * self.factor
        return [encode_longs(values)]


@dataclass(frozen=True, slots=True)
class Floats:
    width: int

    def parts(self, array: pa.Array) -> list[Part]:
        kind = pa.float32() if self.width == 4 else pa.float64()
        return [_fixed_width(_numbers(array, kind), self.width)]


class Booleans:
    def parts(self, array: pa.Array) -> list[Part]:
        return [_fixed_width(_numbers(array, pa.uint8()), 1)]


class Bytes:
    """string and bytes: the length, then the bytes."""

    def parts(self, array: pa.Array) -> list[Part]:
        return [encode_longs(np.asarray(pc.binary_length(array))), array.cast(pa.binary())]


@dataclass(frozen=True, slots=True)
class Fixed:
    path: str
    size: int

    def parts(self, array: pa.Array) -> list[Part]:
        lengths = np.asarray(pc.binary_length(array))
        if len(lengths) and (lengths != self.size).any():
            odd = int(lengths[lengths != self.size][0])
            raise CannotEncode(self.path, f"has {odd} bytes where the schema has fixed({self.size})")
        return [array.cast(pa.binary())]


@dataclass(frozen=True, slots=True)
class Enums:
    path: str
    symbols: tuple[str, ...]

    def parts(self, array: pa.Array) -> list[Part]:
        numbers = pc.index_in(array, pa.array(self.symbols, array.type))
        if numbers.null_count:
            odd = array.filter(numbers.is_null())[0].as_py()
            raise CannotEncode(self.path, f"is '{odd[:80]}', which is not a symbol of the enum")
        return [encode_longs(_numbers(numbers, pa.int64()))]


@dataclass(frozen=True, slots=True)
class Decimals:
    """Two's complement, big-endian: as few bytes as possible, or `size` of them. `scale` is that of the schema."""

    path: str
    type: DataType
    precision: int
    scale: int
    size: int | None = None

    def parts(self, array: pa.Array) -> list[Part]:
        array = self._big_endian(array) if pa.types.is_decimal(array.type) else _from_texts(self, array)
        if self.size is not None:
            return [array]
        return [encode_longs(np.asarray(pc.binary_length(array))), array]

    def _big_endian(self, array: pa.Array) -> pa.Array:
        if array.type.scale != self.scale:
            array = array.cast(pa.decimal256(76, self.scale))
        width = array.type.bit_width // 8
        start = array.offset * width
        little = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, start).reshape(-1, width)
        digits = little[:, ::-1]
        negative = digits[:, 0] >> 7
        differs = digits != (negative * 0xFF)[:, None]
        first = np.where(differs.any(axis=1), differs.argmax(axis=1), width - 1)
        # The highest bit is the sign: keep one more byte where it would be another one.
        first = first - ((digits[np.arange(len(digits)), first] >> 7) != negative)
        if self.size is not None:
            return self._sized(digits, width - first, negative)
        return binary_array(_offsets(width - first), digits[np.arange(width) >= first[:, None]])

    def _sized(self, digits: Any, lengths: Any, negative: Any) -> pa.Array:
        size, width = self.size or 0, digits.shape[1]
        if len(lengths) and lengths.max() > size:
            raise CannotEncode(self.path, f"has a number that needs more than the {size} bytes of the schema")
        if size <= width:
            return _fixed_width(digits[:, width - size :], size)
        filler = np.repeat((negative * 0xFF).astype(np.uint8)[:, None], size - width, axis=1)
        return _fixed_width(np.concatenate((filler, digits), axis=1), size)


def _from_texts(encoder: Decimals, array: pa.Array) -> pa.Array:
    """Numbers that Spark carries as text."""
    limit = 10**encoder.precision
    encoded = []
    for text in array.to_pylist():
        number = int(Decimal(text).scaleb(encoder.scale, _EXACT))
        if not -limit < number < limit:
            raise CannotEncode(encoder.path, f"has a number with more than {encoder.precision} digits")
        length = (number + (number < 0)).bit_length() // 8 + 1
        if encoder.size is not None and length > encoder.size:
            message = f"has a number that needs more than the {encoder.size} bytes of the schema"
            raise CannotEncode(encoder.path, message)
        encoded.append(number.to_bytes(encoder.size or length, "big", signed=True))
    return pa.array(encoded, pa.binary())


@dataclass(frozen=True, slots=True)
class Lists:
    """array: one block, then the end; only the end if it is empty."""

    item: Encoder

    def parts(self, array: pa.Array) -> list[Part]:
        rows, first, count = _rows(array)
        return _blocks(rows, join(self.item.parts(array.values.slice(first, count))))


@dataclass(frozen=True, slots=True)
class Maps:
    item: Encoder

    def parts(self, array: pa.Array) -> list[Part]:
        rows, first, count = _rows(array)
        keys, items = array.keys.slice(first, count), array.items.slice(first, count)
        return _blocks(rows, join([*Bytes().parts(keys), *self.item.parts(items)]))


def _rows(array: pa.Array) -> tuple[Any, int, int]:
    """The offsets of the rows among their own items; the first of these items, and how many there are."""
    offsets = np.asarray(array.offsets)
    first = int(offsets[0])
    return offsets - first, first, int(offsets[-1]) - first


def _blocks(rows: Any, items: pa.Array) -> list[Part]:
    """`rows` are the offsets of the rows among the items. The bytes of a row are next to each other already."""
    counts = np.diff(rows)
    offsets = np.frombuffer(items.buffers()[1], np.int32)[items.offset : items.offset + len(items) + 1]
    ends = binary_array(_offsets(counts > 0), np.zeros(len(counts), np.uint8))
    if not len(items):
        return [encode_longs(counts), ends]
    return [encode_longs(counts), binary_array(offsets[rows], items.buffers()[2]), ends]


@dataclass(frozen=True, slots=True)
class Constant:
    """A field that no column fills: its default, or null."""

    content: bytes

    def parts(self, array: pa.Array) -> list[Part]:
        return [pa.scalar(self.content)]


@dataclass(frozen=True, slots=True)
class Record:
    """`fields`: for each field of the schema, the name of its column, if it has one, and its encoder."""

    fields: tuple[tuple[str | None, Encoder], ...]

    def parts(self, array: pa.Array) -> list[Part]:
        columns = {field.name: index for index, field in enumerate(array.type)}
        return self.columns({name: array.field(index) for name, index in columns.items()}, len(array))

    def columns(self, columns: dict[str, pa.Array], count: int) -> list[Part]:
        found: list[Part] = []
        for name, encoder in self.fields:
            found += encoder.parts(columns[name] if name is not None else pa.nulls(count))
        if not any(isinstance(part, pa.Array) for part in found):
            found.append(binary_array(np.zeros(count + 1), b""))
        return found


@dataclass(frozen=True, slots=True)
class Required:
    """A value that must not be null; in a union, `branch` is the bytes of its number."""

    path: str
    value: Encoder
    branch: bytes = b""

    def parts(self, array: pa.Array) -> list[Part]:
        if array.null_count:
            raise CannotEncode(self.path, "is null, and the Avro schema requires a value")
        parts = self.value.parts(array)
        return [pa.scalar(self.branch), *parts] if self.branch else parts


@dataclass(frozen=True, slots=True)
class Nullable:
    """A union with null. `branch` and `null` are the bytes of the numbers of the branches."""

    value: Encoder
    branch: bytes
    null: bytes

    def parts(self, array: pa.Array) -> list[Part]:
        if not array.null_count:
            return [pa.scalar(self.branch), *self.value.parts(array)]
        if array.null_count == len(array):
            return [pa.array([self.null], pa.binary()).take(pa.array(np.zeros(len(array), np.int64)))]
        valid = np.asarray(array.is_valid().cast(pa.uint8()), bool)
        encoded = join([pa.scalar(self.branch), *self.value.parts(array.drop_null())])
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        return [encoded.take(places).fill_null(self.null)]
