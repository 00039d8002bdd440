"""How many rows of a topic are inserts, updates and deletes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Counted
from streamling.plan.types import OPERATION_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa

ROW_KINDS = "row_kind_count"
_LETTERS = "iud"


def with_kinds(
    items: Iterable[pa.RecordBatch | BadRow | Counted],
) -> Iterator[pa.RecordBatch | BadRow | Counted]:
    """The items, and then the number of their rows by operation."""
    kinds: Counter[str] = Counter()
    for item in items:
        if not isinstance(item, BadRow | Counted):
            kinds.update(_kinds(item))
        yield item
    yield from (Counted(f"{ROW_KINDS}:{kind}", count) for kind, count in kinds.items() if count)


def _kinds(batch: pa.RecordBatch) -> dict[str, int]:
    if OPERATION_COLUMN not in batch.schema.names:
        return {}
    column = batch.column(OPERATION_COLUMN)
    text = column.buffers()[2]
    if column.offset == 0 and text is not None and len(text) == len(column):  # one letter each: count bytes
        letters = text.to_pybytes()
        return {letter: letters.count(letter.encode()) for letter in _LETTERS}
    return {str(pair["values"]): int(pair["counts"]) for pair in column.value_counts().to_pylist()}
