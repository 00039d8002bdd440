"""Hashes of texts, computed for a whole Arrow array at once."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_SEED, _FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)
_WORD = 8
# Longer texts are hashed one by one: for each eight bytes of the longest text the others are looked at again.
_MAX_BYTES = 256
_MASKS = np.array([(1 << (8 * length)) - 1 for length in range(_WORD + 1)], np.uint64)


def hash_texts(texts: pa.Array) -> Hashes:
    """64-bit hashes of texts without NULLs."""
    data, offsets = _buffers(texts)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = lengths.astype(np.uint64) * _SEED
    # Every eight bytes as a number, whatever their address.
    words: Any = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    short = lengths <= _MAX_BYTES
    for position in range(0, int(lengths.max(initial=0, where=short)), _WORD):
        rows = np.flatnonzero(short & (lengths > position))
        word = words[starts[rows] + position] & _MASKS[np.minimum(lengths[rows] - position, _WORD)]
        mixed = (hashes[rows] ^ word) * _FACTOR
        hashes[rows] = mixed ^ (mixed >> _SHIFT)
    for row in np.flatnonzero(~short):
        text = data[starts[row] : starts[row] + lengths[row]].tobytes()
        hashes[row] = int.from_bytes(blake2b(text, digest_size=_WORD).digest(), "little")
    return hashes


def _buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of the texts, with some more at the end, and where each text begins in them."""
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, offsets, data = texts.buffers()
    if not len(texts) or offsets is None:
        return np.zeros(_WORD, np.uint8), np.zeros(1, np.int64)
    positions = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    content = np.frombuffer(data or b"", np.uint8)[positions[0] : positions[-1]]
    return np.concatenate([content, np.zeros(_WORD, np.uint8)]), positions - positions[0]
