"""Columns on their way out of a sandbox: what the code of `casting.py` has written, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import arrow_type
from streamling.plan.types import STRING, DataType, Schema
from streamling.transforms.script.casting import DECIMALS, FLOATS, INTEGERS, LONGS, MOMENTS, SPANS, TEXTS
from streamling.transforms.script.incoming import utf16_units

_Array = np.ndarray[Any, Any]
_SIZES = {
    "F64": np.float64,
    "I32": np.int32,
    "Int16Array": np.int16,
    "Bytes": np.uint8,
    "B64": np.int64,
    "U64": np.uint64,
}


class Outgoing:
    """The result of a call, taken apart slot by slot."""

    def __init__(self, schema: Schema, data: bytes, text: bytes, lengths: Callable[[], bytes]) -> None:
        plan = _Plan()
        for field in schema:
            plan.add(field.type, 0)
        counts = plan.levels + len(plan.wides)
        header = np.frombuffer(data, np.int32, counts + 2)
        self.coerced_nulls = int(header[0])
        self.has_extra = bool(header[1])
        self._counts = [int(n) for n in header[2 : 2 + plan.levels]]
        wide = header[2 + plan.levels :]
        at = -(-4 * (counts + 2) // 8) * 8
        slots: list[_Array] = []
        for type_, level in [("I32", 0), *plan.slots]:
            size = np.dtype(_SIZES[type_]).itemsize * self._counts[level]
            slots.append(np.frombuffer(data[at : at + size], _SIZES[type_]))
            at += -(-size // 8) * 8
        self._wides: list[_Array | None] = []
        for (type_, level), used in zip(plan.wides, wide, strict=True):
            size = 8 * self._counts[level] if used else 0
            self._wides.append(np.frombuffer(data[at : at + size], _SIZES[type_]) if used else None)
            at += size
        self.sources = slots[0]
        """By row: the row of the input that it was made of."""
        self._slots = slots[1:]
        self._level = 0
        self._texts = _cut(text, [self._counts[level] for level in plan.texts], lengths)

    def columns(self, schema: Schema) -> list[pa.Array]:
        """The columns. Call it once: it consumes the slots."""
        return [self._column(field.type, 0) for field in schema]

    def _column(self, type_: DataType, level: int) -> pa.Array:
        kind, target = type_.kind, arrow_type(type_)
        if kind == "null":
            return pa.nulls(self._counts[level])
        if kind == "boolean":
            codes = self._slots.pop(0)
            return pa.array(codes == 1, mask=codes == 2)
        if kind in FLOATS:
            data, mask = self._slots.pop(0), self._slots.pop(0) == 1
            with np.errstate(over="ignore"):
                return pa.array(data.astype(target.to_pandas_dtype()), target, mask=mask)
        if kind in INTEGERS:
            data, mask = self._slots.pop(0), self._slots.pop(0) == 1
            return pa.array(data.astype(target.to_pandas_dtype()), target, mask=mask)
        if kind in LONGS:
            return self._longs(kind, target)
        if kind in TEXTS:
            return _masked(self._texts.pop(0), self._slots.pop(0))
        if kind in DECIMALS:
            return _masked(self._texts.pop(0), self._slots.pop(0)).cast(target)
        if kind in MOMENTS or kind in SPANS:
            return self._moments(kind, target)
        if kind == "binary":
            return self._binary()
        if kind == "struct":
            absent = self._slots.pop(0) == 1
            children = [self._column(field.type, level) for field in type_.fields]
            return pa.StructArray.from_arrays(children, fields=list(target), mask=pa.array(absent))
        return self._items(type_, target)

    def _longs(self, kind: str, target: pa.DataType) -> pa.Array:
        data, mask = self._slots.pop(0), self._slots.pop(0) == 1
        wide = self._wides.pop(0)
        far = np.isnan(data)
        dtype = np.int64 if kind == "int64" else np.uint64
        values = np.where(far, 0.0, data).astype(dtype)
        if wide is not None:
            values = np.where(far, wide, values)
        exact = pa.array(values, mask=mask)
        return exact if kind == "int64" else exact.cast(target)

    def _moments(self, kind: str, target: pa.DataType) -> pa.Array:
        data, rest, mask = self._slots.pop(0), self._slots.pop(0), self._slots.pop(0) == 1
        if kind in ("date32", "date64"):
            return pa.array(np.floor(data / 86_400_000).astype(np.int32), mask=mask).cast(target)
        return pa.array(data.astype(np.int64) * 1000 + rest, mask=mask).cast(target)

    def _binary(self) -> pa.Array:
        sizes, data = self._slots.pop(0), self._slots.pop(0)
        self._next_level()
        offsets = np.concatenate(([0], np.cumsum(np.maximum(sizes, 0)))).astype(np.int32)
        values = pa.Array.from_buffers(
            pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
        )
        return _masked(values, (sizes < 0).astype(np.uint8))

    def _items(self, type_: DataType, target: pa.DataType) -> pa.Array:
        sizes = self._slots.pop(0)
        level = self._next_level()
        offsets = pa.array(
            np.concatenate(([0], np.cumsum(np.maximum(sizes, 0)))).astype(np.int32),
            mask=np.concatenate((sizes < 0, [False])) if (sizes < 0).any() else None,
        )
        if type_.kind == "map":
            keys = self._column(type_.key or STRING, level)
            items = self._column(type_.item or STRING, level)
            return pa.MapArray.from_arrays(offsets, keys, items, target)
        return pa.ListArray.from_arrays(offsets, self._column(type_.item or STRING, level), target)

    def _next_level(self) -> int:
        self._level += 1
        return self._level


class _Plan:
    """The slots of a schema, as the generated code numbers them."""

    def __init__(self) -> None:
        self.slots: list[tuple[str, int]] = []
        self.wides: list[tuple[str, int]] = []
        self.texts: list[int] = []
        self.levels = 1

    def add(self, type_: DataType, level: int) -> None:
        kind = type_.kind
        if kind in LONGS:
            self.wides.append((LONGS[kind][2], level))
        if kind in TEXTS or kind in DECIMALS:
            self.texts.append(level)
            self.slots.append(("Bytes", level))
        elif kind == "binary":
            self.slots.append(("I32", level))
            self.slots.append(("Bytes", self._next()))
        elif kind == "struct":
            self.slots.append(("Bytes", level))
            for field in type_.fields:
                self.add(field.type, level)
        elif kind in ("list", "map"):
            self.slots.append(("I32", level))
            inner = self._next()
            if kind == "map":
                self.add(type_.key or STRING, inner)
            self.add(type_.item or STRING, inner)
        else:
            self.slots.extend((slot, level) for slot in _leaf_slots(kind))

    def _next(self) -> int:
        self.levels += 1
        return self.levels - 1


def _leaf_slots(kind: str) -> Sequence[str]:
    if kind == "null":
        return ()
    if kind == "boolean":
        return ("Bytes",)
    if kind in MOMENTS or kind in SPANS:
        return ("F64", "Int16Array", "Bytes")
    return ("F64", "Bytes")


def _masked(values: pa.Array, mask: _Array) -> pa.Array:
    if not mask.any():
        return values
    return pc.if_else(pa.array(mask == 1), pa.scalar(None, values.type), values)


def _cut(text: bytes, counts: Sequence[int], lengths: Callable[[], bytes]) -> list[pa.Array]:
    """The texts of all columns: they come as one text with separators."""
    total = sum(counts)
    if total == 0:
        return [pa.array([], pa.string()) for _ in counts]
    data = np.frombuffer(text, np.uint8)
    if np.count_nonzero(data == 0) == total - 1:
        whole = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(np.array([0, len(text)], np.int32)), pa.py_buffer(text)]
        )
        values = pc.split_pattern(whole, "\0").values
    else:
        values = _cut_by_length(data, np.frombuffer(lengths(), np.int32))
    ends = np.cumsum(counts)
    return [values.slice(int(end) - count, count) for end, count in zip(ends, counts, strict=True)]


def _cut_by_length(data: _Array, lengths: _Array) -> pa.Array:
    """Texts that contain the separator: cut by their lengths in UTF-16."""
    units = np.concatenate(([0], np.cumsum(utf16_units(data))))
    starts = np.concatenate(([0], np.cumsum(lengths.astype(np.int64) + 1)))[:-1]
    # A character of several bytes is counted with its first byte: the place is behind the last one.
    first = np.searchsorted(units, starts, side="right") - 1
    last = np.searchsorted(units, starts + lengths, side="right") - 1
    raw = data.tobytes()
    return pa.array([raw[a:b].decode() for a, b in zip(first, last, strict=True)], pa.string())
