"""Columns on their way into a sandbox: what `casting.py` reads, in the same order."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import cast_array
from streamling.plan.types import STRING, DataType, Field
from streamling.transforms.script.casting import DECIMALS, SPANS, form_of

_SAFE = 2**53 - 1
_INT32 = 2**31 - 1


class Incoming:
    """The bytes of a batch: one buffer that begins with a header, and texts."""

    def __init__(self) -> None:
        self._header: list[int] = []
        self._pieces: list[tuple[int, Any]] = []
        self._size = 0
        self._texts: list[Any] = []
        self._seed = 0

    def add_int(self, *values: int) -> None:
        self._header.extend(values)

    def add_values(self, values: np.ndarray[Any, Any]) -> None:
        """Their place; the reader knows their type."""
        data = np.ascontiguousarray(values)
        self._header.append(self._size)
        if data.nbytes:
            self._pieces.append((self._size, data))
            self._seed = zlib.crc32(data.data, self._seed)
        self._size += -(-data.nbytes // 8) * 8

    def add_text(self, text: pa.Buffer) -> None:
        self._texts.append(text)
        self._seed = zlib.crc32(text, self._seed)

    def layout(
        self, rows: int, *, stop: bool, seed: int
    ) -> tuple[int, list[tuple[int, Any]], int, list[tuple[int, int]]]:
        """The size of all bytes, the pieces and where they go, the size of the buffer, and the places of the texts."""
        mixed = zlib.crc32(seed.to_bytes(8, "little", signed=True), self._seed)
        ints = [0, rows, int(stop), _signed(mixed), _signed(seed ^ (seed >> 32)), *self._header]
        base = -(-4 * len(ints) // 8) * 8
        ints[0] = base
        pieces: list[tuple[int, Any]] = [(0, np.array(ints, np.int32))]
        pieces += [(base + offset, data) for offset, data in self._pieces]
        end = buffer = base + self._size
        places = []
        for text in self._texts:
            places.append((end, text.size))
            pieces.append((end, text))
            end += text.size
        return end, pieces, buffer, places


def _signed(value: int) -> int:
    return (value & 0xFFFFFFFF) - (1 << 32 if value & 0x80000000 else 0)


def add_columns(incoming: Incoming, batch: pa.RecordBatch, fields: Sequence[Field]) -> None:
    for field in fields:
        _add(incoming, batch.column(field.name), field.type)


def _add(incoming: Incoming, array: pa.Array, type_: DataType) -> None:
    match form_of(type_):
        case "null":
            return
        case "boolean":
            codes = pc.fill_null(array.cast(pa.uint8()), 2)
            incoming.add_int(len(array))
            incoming.add_values(_numpy(codes))
        case "number":
            _add_numbers(incoming, array, type_)
        case "text":
            _add_texts(incoming, array if type_.kind not in DECIMALS else cast_array(array, pa.string()))
        case "binary":
            _add_binary(incoming, array)
        case "struct":
            _add_marks(incoming, array)
            for index, field in enumerate(type_.fields):
                _add(incoming, array.field(index), field.type)
        case form:
            _add_items(incoming, array, type_, form)


def _add_items(incoming: Incoming, array: pa.Array, type_: DataType, form: str) -> None:
    _add_marks(incoming, array)
    offsets = _numpy(array.offsets).astype(np.int32)
    first = int(offsets[0]) if len(offsets) else 0
    incoming.add_int(len(offsets))
    incoming.add_values(offsets - first)
    size = int(offsets[-1]) - first if len(offsets) else 0
    if form == "map":
        _add(incoming, array.keys.slice(first, size), type_.key or STRING)
        _add(incoming, array.items.slice(first, size), type_.item or STRING)
    else:
        _add(incoming, array.values.slice(first, size), type_.item or STRING)


def _add_marks(incoming: Incoming, array: pa.Array) -> None:
    incoming.add_int(len(array))
    incoming.add_values(_numpy(array.is_null().cast(pa.uint8())))


def _add_nulls(incoming: Incoming, array: pa.Array) -> None:
    where = _nulls(array) if array.null_count else np.empty(0, np.int32)
    incoming.add_int(len(where))
    incoming.add_values(where)


def _nulls(array: pa.Array) -> np.ndarray[Any, Any]:
    return np.flatnonzero(_numpy(array.is_null().cast(pa.uint8()))).astype(np.int32)


def _add_numbers(incoming: Incoming, array: pa.Array, type_: DataType) -> None:
    values, bigs = number_values(array, type_)
    incoming.add_int((1 if values.dtype == np.float64 else 0) | (2 if type_.kind == "uint64" else 0), len(values))
    incoming.add_values(values)
    where = np.empty(0, np.int32) if bigs is None else np.flatnonzero(np.abs(values) > _SAFE).astype(np.int32)
    incoming.add_int(len(where))
    incoming.add_values(where)
    incoming.add_values(np.empty(0, np.int64) if bigs is None else bigs[where])
    _add_nulls(incoming, array)


def number_values(array: pa.Array, type_: DataType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Values as a script sees them, 0 for null; and the exact ones if some are too large for a double."""
    kind = type_.kind
    if kind in ("float16", "float32", "float64"):
        return _numpy(_filled(array)).astype(np.float64), None
    if kind in DECIMALS:
        unscaled = np.frombuffer(_decimal_bytes(array), np.int64)[::2]
        return np.where(_present(array), unscaled, 0) / 10.0 ** (type_.scale or 0), None
    if kind in ("date32", "date64"):
        return _numpy(_filled(array.cast(pa.int32()))) * 86_400_000.0, None
    if kind == "timestamp" or kind in SPANS:
        return _numpy(_filled(array.cast(pa.int64()))) / 1000.0, None
    if kind == "uint64":
        halves = np.frombuffer(_decimal_bytes(array), np.uint64)[::2]
        values = np.where(_present(array), halves, np.uint64(0))
        return values.astype(np.float64), values if len(values) and values.max() > _SAFE else None
    values = _numpy(_filled(array))
    most = max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0
    if most <= _INT32:
        return values.astype(np.int32), None
    return values.astype(np.float64), values.astype(np.int64) if most > _SAFE else None


def _filled(array: pa.Array) -> pa.Array:
    return pc.fill_null(array, pa.scalar(0, array.type)) if array.null_count else array


def _present(array: pa.Array) -> Any:
    return _numpy(array.is_valid().cast(pa.uint8())).astype(bool) if array.null_count else True


def _decimal_bytes(array: pa.Array) -> memoryview:
    return memoryview(array.buffers()[1])[16 * array.offset : 16 * (array.offset + len(array))]


def _add_texts(incoming: Incoming, array: pa.Array) -> None:
    plain = pc.fill_null(array, "") if array.null_count else array
    incoming_rows = pa.ListArray.from_arrays(pa.array([0, len(plain)], pa.int32()), plain)
    joined = pc.binary_join(incoming_rows, "\0")[0].as_buffer() if len(plain) else pa.py_buffer(b"")
    apart = len(plain) == 0 or np.count_nonzero(np.frombuffer(joined, np.uint8) == 0) == len(plain) - 1
    incoming.add_int(int(apart), len(plain))
    if apart:
        incoming.add_values(np.empty(0, np.int32))
        incoming.add_text(joined)
    else:
        joined = pc.binary_join(incoming_rows, "")[0].as_buffer()
        ends = np.cumsum(_numpy(pc.binary_length(plain)), dtype=np.int64)
        incoming.add_values(utf16_places(np.frombuffer(joined, np.uint8), ends).astype(np.int32))
        incoming.add_text(joined)
    _add_nulls(incoming, array)


def utf16_places(data: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Places in UTF-8 bytes as places in the same text in UTF-16."""
    places: np.ndarray[Any, Any] = np.concatenate(([0], np.cumsum(utf16_units(data))))[ends]
    return places


def utf16_units(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For every byte of UTF-8: how many units of UTF-16 begin with it."""
    units: np.ndarray[Any, Any] = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
    return units


def _add_binary(incoming: Incoming, array: pa.Array) -> None:
    plain = pc.fill_null(array, b"") if array.null_count else array
    ends = np.cumsum(_numpy(pc.binary_length(plain)), dtype=np.int64).astype(np.int32)
    rows = pa.ListArray.from_arrays(pa.array([0, len(plain)], pa.int32()), plain)
    data = pc.binary_join(rows, b"")[0].as_buffer() if len(plain) else pa.py_buffer(b"")
    incoming.add_int(len(ends))
    incoming.add_values(ends)
    incoming.add_int(data.size)
    incoming.add_values(np.frombuffer(data, np.uint8))
    _add_nulls(incoming, array)


def _numpy(array: pa.Array) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return values
