"""Which rows of an epoch count.

The order of rows does not matter for sums and edges, so a row that comes back with another operation counts again. With
`deduplicate`, rows of a key that follow each other in a batch with the same operation are one change, written several
times: the last of them counts. With `retract` the last row of a key decides alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamling.plan.types import OPERATION_COLUMN
from streamling.sinks.postgres.rounds import EffectiveRows, key_numbers, last_of_each, last_of_each_run

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres.rounds import Indexes

INSERT, UPDATE, DELETE = range(3)


def operations(rows: pa.Table) -> Indexes:
    """A number per row; a null or an unknown operation is an insert."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_lower(rows.column(OPERATION_COLUMN))
    numbers = pc.index_in(texts, value_set=pa.array(["u", "d"])).fill_null(-1)
    found: Indexes = np.asarray(numbers, dtype=np.int64) + 1
    return found


def counted_rows(
    rows: pa.Table, key: Sequence[str], batch_size: int, *, deduplicate: bool, retract: bool
) -> EffectiveRows:
    """The rows that count. Those with the same number take the same place in the landing table."""
    import numpy as np

    kinds, keys = operations(rows), key_numbers(rows, key)
    indexes = np.arange(rows.num_rows)
    if deduplicate and len(indexes):
        batches = indexes // batch_size
        groups = keys * (batches[-1] + 1) + batches  # a number per key and batch
        indexes = last_of_each(groups) if retract else last_of_each_run(groups, kinds)
    return EffectiveRows(indexes, keys if retract else keys * 3 + kinds, kinds == DELETE)
