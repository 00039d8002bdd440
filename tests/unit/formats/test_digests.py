"""Digests of columns: the same for equal values, other ones for other values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamling.formats.digests import digest_columns

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, None, 3, 4, 5, 6]),
    (pa.uint8(), [1, 0, 1, None, 1, 1]),
    (pa.bool_(), [True, False, None, True, True, False]),
    (pa.string(), ["a", "bc", None, "", "x", "yz"]),
    (pa.binary(), [b"a", b"\0", None, b"", b"x", b"yz"]),
    (pa.binary(2), [b"ab", None, b"cd", b"ef", b"gh", b"ij"]),
    (pa.decimal256(50, 2), [Decimal("1.25"), None, Decimal(2), Decimal(3), Decimal(4), Decimal(5)]),
    (pa.timestamp("us"), [1, None, 3, 4, 5, 6]),
    (pa.list_(pa.string()), [["a"], [], ["b", None], ["c"], [], ["d", "e"]]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], [], [("b", 2), ("c", 3)], [], [("d", None)], []]),
    (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": n, "b": "x" * n} for n in range(6)]),
    (pa.null(), [None] * 6),
]


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=[str(type_) for type_, _ in COLUMNS])
def test_slices_and_copies_of_the_same_values_have_one_digest(type_: pa.DataType, values: list[Any]) -> None:
    whole = pa.array(values, type_)
    others = pa.array([*values[3:], *values[:5], *values], type_)
    expected = digest_columns([pa.array(values[1:5], type_)])
    for same in (whole.slice(1, 4), others.slice(9, 4), whole.take(pa.array(np.arange(1, 5)))):
        assert digest_columns([same]) == expected
    assert digest_columns([whole]) != expected
    if not pa.types.is_null(type_):
        assert digest_columns([whole.slice(2, 4)]) != expected


def test_what_is_in_the_place_of_a_null_does_not_count() -> None:
    values = [pa.py_buffer(np.array(numbers, np.int64)) for numbers in ([1, 7, 3], [1, 8, 3])]
    one, other = (pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), value]) for value in values)
    assert digest_columns([one]) == digest_columns([other])
    assert digest_columns([one]) != digest_columns([pa.array([1, 0, 3], pa.int64())])


def test_values_do_not_move_between_columns() -> None:
    assert digest_columns([pa.array(["ab"]), pa.array(["c"])]) != digest_columns([pa.array(["a"]), pa.array(["bc"])])
    assert digest_columns([pa.array(["a", "bc"])]) != digest_columns([pa.array(["ab", "c"])])
