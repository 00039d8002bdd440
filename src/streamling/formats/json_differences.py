"""Cases in which Arrow reads JSON differently from our reading of single objects.

Arrow does not get a chunk with such a case. Every check here runs for every chunk, so it must be fast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_CONSTANTS = (b"NaN", b"Inf")
_EXPONENTS = (b"e-", b"E-")
_ESCAPED_EXPONENTS = (rb"\u0065", rb"\u0045", rb"\u002d", rb"\u002D")
# A number, or a text with a number: the digits after its point, and its exponent.
_SMALL = re.compile(rb'[:"\s\[,][-+]?[0-9]*(?:\.([0-9]*))?[eE]-([0-9]+)[",}\]\s]')
_DECIMAL_PLACES = 38
_WINDOW = 1 << 16  # fits into the caches of a core
# The second day of the year 1: the beginning of the first day depends on the zone.
_EARLY = -719_161
_DAY_US = 24 * 3600 * 1_000_000


def has_constants(data: bytes, lines: Sequence[bytes]) -> bool:
    """Whether there are numbers like NaN, which are not valid JSON. `data` is all lines joined."""
    constants = [constant for constant in _CONSTANTS if _contains(data, constant)]
    return any(constant in _STRING.sub(b"", line) for constant in constants for line in lines if constant in line)


def has_tiny_numbers(data: bytes, lines: Sequence[bytes]) -> bool:
    """Whether there are numbers with more decimal places than a decimal has; Arrow reads some of them as zero."""
    if b"\\" in data and any(escaped in data for escaped in _ESCAPED_EXPONENTS):
        return True
    marks = [mark for mark in _EXPONENTS if _contains(data, mark)]
    return any(
        len(places or b"") + int(exponent[:9]) > _DECIMAL_PLACES
        for mark in marks
        for line in lines
        if mark in line
        for places, exponent in _SMALL.findall(line)
    )


def is_out_of_range(column: pa.Array) -> bool:
    """Whether Arrow has read a number that is too large for its type, or a time that may be in the year 0."""
    if pa.types.is_floating(column.type):
        return not pc.all(pc.is_finite(column), min_count=0).as_py()
    if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
        days = pa.types.is_date32(column.type)
        earliest = pc.min(column.view(pa.int32() if days else pa.int64())).as_py()
        return earliest is not None and earliest < (_EARLY if days else _EARLY * _DAY_US)
    if pa.types.is_struct(column.type):
        return any(map(is_out_of_range, column.flatten()))
    return pa.types.is_list(column.type) and is_out_of_range(column.flatten())


def _contains(data: bytes, word: bytes) -> bool:
    """Whether a word of a few letters is in the data: the result of `in`, three times as fast."""
    letters, more = np.frombuffer(data, np.uint8), len(word) - 1
    for start in range(0, len(letters) - more, _WINDOW):
        window = letters[start : start + _WINDOW + more]
        size = len(window) - more
        matches = window[:size] == word[0]
        for place in range(1, more + 1):
            matches &= window[place : place + size] == word[place]
        if matches.any():
            return True
    return False
