"""Rows of Postgres in one value per column: all texts one after the other, and their lengths.

Rows of their own would have to pass through Python, one by one. Here the server joins the texts, and Arrow gets its
buffers as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# What `array_send` puts before the elements: dimensions, flags, type, size, first index, of four bytes each. An element
# is its size and its value.
_HEADER_BYTES = 20
_NULL = -1


def packed(expressions: Sequence[str]) -> str:
    """The SELECT items that pack the texts of these expressions. Postgres computes all of them in the same order of
    rows."""
    items = []
    for expression in expressions:
        text = f"convert_to({expression}, 'UTF8')"
        lengths = f"array_agg(coalesce(octet_length({text}), {_NULL}))"
        items += [f"string_agg({text}, ''::bytea)", f"array_send({lengths})"]
    return ", ".join(items)


def unpack(values: Sequence[bytes | None], names: Sequence[str]) -> pa.Table:
    """The texts in the one row that a packed SELECT returns, as columns."""
    import pyarrow as pa

    pairs = zip(values[::2], values[1::2], strict=True)
    return pa.table([_texts(texts, lengths) for texts, lengths in pairs], list(names))


def _texts(texts: bytes | None, sent: bytes | None) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if sent is None:  # no rows
        return pa.array([], pa.large_string())
    lengths = np.frombuffer(sent, ">i4", offset=_HEADER_BYTES)[1::2].astype(np.int64)
    present = lengths != _NULL
    offsets = np.concatenate([[0], np.cumsum(np.where(present, lengths, 0))])
    validity = None if present.all() else pa.array(present).buffers()[1]
    return pa.LargeStringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(texts or b""), validity)
