"""The elements of a JSON array, without parsing them."""

from __future__ import annotations

import numpy as np

_SPACES = b" \t\n\r"
_QUOTE, _COMMA = ord('"'), ord(",")
_STEP = np.zeros(256, np.int32)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1


def split_array(text: bytes) -> list[bytes]:
    """The elements as they are written; whether they are JSON is not checked. Raises ValueError if it is not an array.

    Commas and brackets count where they are not inside of text.
    """
    text = text.strip(_SPACES)
    if text[:1] != b"[" or text[-1:] != b"]":
        raise ValueError("not an array")
    plain = text.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in text else text
    data = np.frombuffer(plain, np.uint8)
    inside = np.logical_xor.accumulate(data == _QUOTE)
    steps = _STEP[data]
    steps[inside] = 0
    depth = np.cumsum(steps, dtype=np.int32)
    if depth[-1] != 0 or inside[-1] or (depth[:-1] < 1).any():
        raise ValueError("not one array")
    commas = np.flatnonzero((data == _COMMA) & ~inside & (depth == 1)).tolist()
    edges = [0, *commas, len(text) - 1]
    elements = [text[edges[i] + 1 : edges[i + 1]].strip(_SPACES) for i in range(len(edges) - 1)]
    return [] if elements == [b""] else elements
