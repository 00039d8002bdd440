"""The batches of calls: of the size that the node asks for, or as they come, cut to a size that a sandbox can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streamling.formats.arrow import rebatch
from streamling.transforms.script.sandbox import CALL_BYTES, CALL_ROWS


def calls(batches: Iterable[pa.RecordBatch], size: int | None) -> Iterator[pa.RecordBatch]:
    """Batches of `size` rows, the last one smaller; none of them is empty."""
    for batch in rebatch(batches, size):
        yield from _cut(batch, size or CALL_ROWS)


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
