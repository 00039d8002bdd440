"""Finds the rows that a query cannot compute. Spark only reports that there is one.

A query computes each row by itself, so halves of the rows can be tried until single rows are left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from streamling.connector import BadRow
from streamling.engine.data.spark_errors import RowFailure
from streamling.formats.json import json_row

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_CHUNK_ROWS, _CHUNK_BYTES = 10_000, 16 << 20
_REMIND_S = 10.0


class RowSearch:
    """`attempt` computes the query over some rows; it raises RowFailure if one of them cannot be computed."""

    def __init__(self, node: str, attempt: Callable[[pa.Table], None]) -> None:
        self._node = node
        self._attempt = attempt
        self._found = 0
        self._told = time.monotonic()

    def bad_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[BadRow]:
        """In their order; `index` counts the rows of all batches."""
        first = 0
        for table in _chunks(batches):
            yield from self._among(table, first, self._failure(table))
            first += table.num_rows

    def _among(self, table: pa.Table, first: int, failure: RowFailure | None) -> Iterator[BadRow]:
        """`failure`: what happens if all rows of the table are computed."""
        if failure is None:
            return
        if table.num_rows == 1:
            self._tell()
            yield BadRow(failure.reason, failure.message, {}, row=json_row(table, 0), index=first)
            return
        half = table.num_rows // 2
        left, right = table.slice(0, half), table.slice(half)
        left_failure = self._failure(left)
        yield from self._among(left, first, left_failure)
        # If the left half is good, the failure was one of the right half.
        yield from self._among(right, first + half, self._failure(right) if left_failure else failure)

    def _failure(self, table: pa.Table) -> RowFailure | None:
        try:
            self._attempt(table)
        except RowFailure as failure:
            return failure
        return None

    def _tell(self) -> None:
        self._found += 1
        if time.monotonic() - self._told > _REMIND_S:
            self._told = time.monotonic()
            log.warning("'%s' cannot compute %d rows so far; looking for more", self._node, self._found)


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
