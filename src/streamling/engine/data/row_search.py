"""Finds the rows that a query cannot compute. Spark only reports that there is one.

A query computes each row by itself. So its rows can be scanned one after the other (`row_scan.py`); where that is not
possible, or not enough, halves of the rows are tried until single rows are left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from streamling.connector import BadRow
from streamling.engine.data.row_scan import scan, scannable_frames
from streamling.engine.data.spark_errors import RowFailure, spark_errors
from streamling.engine.data.spark_rows import collect
from streamling.formats.json import json_row

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_CHUNK_ROWS, _CHUNK_BYTES = 100_000, 16 << 20
_REMIND_S = 10.0


class RowSearch:
    """`make` makes the frame of the query over some rows. Used by one thread."""

    def __init__(self, session: SparkSession, node: str, make: Callable[[pa.Table], DataFrame]) -> None:
        self._session = session
        self._node = node
        self._make = make
        self._found = 0
        self._told = time.monotonic()

    def bad_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[BadRow]:
        """In their order; `index` counts the rows of all batches."""
        first = 0
        for table in _chunks(batches):
            for bad in self._of_chunk(table):
                yield replace(bad, index=first + (bad.index or 0))
            first += table.num_rows

    def _of_chunk(self, table: pa.Table) -> list[BadRow]:
        """Rows that the scan finds, and those that are still in the way without them."""
        import numpy as np

        failures = self._scan(table)
        if not failures:
            return list(self._among(table, 0, self._failure(table)))
        numbers = np.setdiff1d(np.arange(table.num_rows), np.fromiter(failures, np.int64))
        rest = table.take(numbers)
        self._note(len(failures))
        found = [_bad_row(table, number, failure) for number, failure in failures.items()]
        if len(numbers):
            more = self._among(rest, 0, self._failure(rest))
            found += [replace(bad, index=int(numbers[bad.index or 0])) for bad in more]
        return sorted(found, key=lambda bad: bad.index or 0)

    def _scan(self, table: pa.Table) -> Mapping[int, RowFailure]:
        """The rows that fail, by number; none if they cannot be scanned, or if the first of them is good when it is
        computed alone."""
        try:
            with spark_errors(self._node), scannable_frames(self._session):
                frame = self._make(table)
        except RowFailure:  # values that are looked up in dynamic tables are computed first
            return {}
        failures = dict(scan(frame, self._node) or ())
        first = next(iter(failures), None)
        return failures if first is not None and self._failure(table.slice(first, 1)) else {}

    def _among(self, table: pa.Table, first: int, failure: RowFailure | None) -> Iterator[BadRow]:
        """`failure`: what happens if all rows of the table are computed."""
        if failure is None:
            return
        if table.num_rows == 1:
            self._note(1)
            yield replace(_bad_row(table, 0, failure), index=first)
            return
        half = table.num_rows // 2
        left, right = table.slice(0, half), table.slice(half)
        left_failure = self._failure(left)
        yield from self._among(left, first, left_failure)
        # If the left half is good, the failure was one of the right half.
        yield from self._among(right, first + half, self._failure(right) if left_failure else failure)

    def _failure(self, table: pa.Table) -> RowFailure | None:
        try:
            with spark_errors(self._node):
                collect(self._make(table))
        except RowFailure as failure:
            return failure
        return None

    def _note(self, found: int) -> None:
        self._found += found
        if time.monotonic() - self._told > _REMIND_S:
            self._told = time.monotonic()
            log.warning("'%s' cannot compute %d rows so far; looking for more", self._node, self._found)


def _bad_row(table: pa.Table, number: int, failure: RowFailure) -> BadRow:
    return BadRow(failure.reason, failure.message, {}, row=json_row(table, number), index=number)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK_ROWS):
            part = batch.slice(start, _CHUNK_ROWS)
            if held and (rows + part.num_rows > _CHUNK_ROWS or size > _CHUNK_BYTES):
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
            held.append(part)
            rows += part.num_rows
            size += part.nbytes
    if held:
        yield pa.Table.from_batches(held)
