"""The batches of calls: of the size that the node asks for, or as they come, cut to a size that a sandbox can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streamling.transforms.script.sandbox import CALL_BYTES, CALL_ROWS


def calls(batches: Iterable[pa.RecordBatch], size: int | None) -> Iterator[pa.RecordBatch]:
    """Batches of `size` rows, the last one smaller; none of them is empty."""
    if size is None:
        for batch in batches:
            yield from _cut(batch, CALL_ROWS)
        return
    buffer: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        while batch.num_rows:
            head = batch.slice(0, size - rows)
            buffer.append(head)
            rows += head.num_rows
            batch = batch.slice(head.num_rows)
            if rows == size:
                yield from _cut(pa.concat_batches(buffer), size)
                buffer, rows = [], 0
    if buffer:
        yield from _cut(pa.concat_batches(buffer), size)


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, size):
        yield from _halves(batch.slice(start, size))


def _halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= 1 or batch.nbytes <= CALL_BYTES:
        if batch.num_rows:
            yield batch
        return
    middle = batch.num_rows // 2
    yield from _halves(batch.slice(0, middle))
    yield from _halves(batch.slice(middle))
