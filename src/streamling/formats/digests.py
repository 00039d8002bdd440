"""The content of Arrow columns as a digest: the same for equal values, however the buffers around them look.

Arrow's own bytes are not: what follows the values in a buffer, and what is in the place of a null, may be anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def digest_columns(columns: Iterable[pa.Array]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for column in columns:
        _add(digest, column)
    return digest.digest()


def _add(digest: Any, array: pa.Array) -> None:
    type_ = array.type
    digest.update(f"{type_}:{len(array)};".encode())
    nulls = np.asarray(array.is_null().cast(pa.uint8()), bool) if array.null_count else None
    if nulls is not None:
        digest.update(np.packbits(nulls))
    if pa.types.is_null(type_):
        return
    if pa.types.is_boolean(type_):
        digest.update(np.asarray(array.fill_null(False).cast(pa.uint8())))
    elif pa.types.is_struct(type_):
        for member in array.flatten():
            _add(digest, member)
    elif pa.types.is_list(type_) or pa.types.is_map(type_):
        _add_lists(digest, array)
    elif pa.types.is_string(type_) or pa.types.is_binary(type_):
        _add_texts(digest, array)
    else:
        _add_fixed(digest, array, nulls)


def _add_lists(digest: Any, array: pa.Array) -> None:
    offsets = np.asarray(array.offsets)
    digest.update(np.diff(offsets))
    children = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    for child in children:
        _add(digest, child.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))


def _add_texts(digest: Any, array: pa.Array) -> None:
    if array.null_count:
        array = pc.fill_null(array, b"" if pa.types.is_binary(array.type) else "")
    _, offset_buffer, data = array.buffers()
    if not len(array) or offset_buffer is None:
        return
    offsets = np.frombuffer(offset_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    digest.update(np.diff(offsets))
    if data is not None:
        digest.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])


def _add_fixed(digest: Any, array: pa.Array, nulls: Any) -> None:
    """Numbers, times, decimals, and bytes of a fixed length."""
    data = array.buffers()[1]
    if not len(array) or data is None:
        return
    width = array.type.byte_width if pa.types.is_fixed_size_binary(array.type) else array.type.bit_width // 8
    bytes_ = np.frombuffer(data, np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    if nulls is not None:
        bytes_ = bytes_.copy()
        bytes_.reshape(-1, width)[nulls] = 0
    digest.update(bytes_)
