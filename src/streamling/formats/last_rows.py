"""Which rows of an epoch a sink writes that keeps, of several rows of one key in a batch, only the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamling.formats.json_encoding import plain_texts

if TYPE_CHECKING:
    Indexes = np.ndarray[Any, Any]


def last_rows(rows: pa.Table, key: Sequence[str], batch_rows: int | None, excluded: Sequence[int] = ()) -> Indexes:
    """The numbers of the rows to be written, in order: of each key the last row among `batch_rows` rows. All rows if
    there is no key, or no `batch_rows`. Rows that are `excluded` hide no other row."""
    indexes = np.arange(rows.num_rows)
    if len(excluded):
        indexes = np.setdiff1d(indexes, np.asarray(excluded))
    if batch_rows is None or not key or not len(indexes):
        return indexes
    if len(key) == 1 and _are_distinct(rows.column(key[0]), batch_rows):
        return indexes
    numbers = key_numbers(rows, key)
    if numbers.max() + 1 == rows.num_rows:  # every row has a key of its own
        return indexes
    groups = numbers * (rows.num_rows // batch_rows + 1) + np.arange(rows.num_rows) // batch_rows
    # The first of each group from the end is the last one.
    _, from_end = np.unique(groups[indexes][::-1], return_index=True)
    return np.sort(indexes[len(indexes) - 1 - from_end])


def key_numbers(rows: pa.Table, key: Sequence[str]) -> Indexes:
    """A number for each row, the same for rows of one key, from 0 without gaps; null is a value like others."""
    combined: Indexes | None = None
    for name in key:
        column = rows.column(name).combine_chunks()
        codes: Indexes = np.asarray(_comparable(column).dictionary_encode(null_encoding="encode").indices, np.int64)
        if combined is None:
            combined = codes
        else:  # made dense again, so that many columns do not overflow
            _, combined = np.unique(combined * (int(codes.max()) + 1) + codes, return_inverse=True)
    if combined is None:
        raise AssertionError("a key has columns")
    return combined


def _are_distinct(column: pa.ChunkedArray, batch_rows: int) -> bool:
    """Whether no number is there twice in a batch. False for columns of other types: that would take longer."""
    if column.null_count or not pa.types.is_integer(column.type):
        return False
    values = column.to_numpy()
    whole = len(values) // batch_rows * batch_rows
    for batches in (values[:whole].reshape(-1, batch_rows), values[whole:].reshape(1, -1)):
        ordered = np.sort(batches, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            return False
    return True


def _comparable(column: pa.Array) -> pa.Array:
    """Arrow cannot number nested values: their JSON instead."""
    return plain_texts(column, None) if pa.types.is_nested(column.type) else column
