"""Which rows of an epoch reach the table, and in which rounds: a round never has two rows to write for one key.

Rows take effect in their order. With `deduplicate`, a batch of `batch_size` rows keeps the last row of each key, and
the last deletion before it: a row that was deleted and comes back is a new row. If the last row of a key decides alone,
the whole epoch is one round. If an earlier row may decide (`on_conflict: nothing`, `update_where`), or every change is
written (without `deduplicate`), round k has the k-th row of each key; an epoch in which no key repeats is one round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamling.plan.types import OPERATION_COLUMN

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Indexes = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Round:
    """Row indexes in the table of an epoch: keys to delete first, then rows to insert or update."""

    deletes: Indexes
    upserts: Indexes


@dataclass(frozen=True, slots=True)
class EffectiveRows:
    """The rows that take effect, by index, in order.

    `keys` and `deletions` cover all rows of the epoch: a number per key, and whether the row is a deletion.
    """

    indexes: Indexes
    keys: Indexes | None
    deletions: Indexes

    def __len__(self) -> int:
        return len(self.indexes)

    def halves(self) -> tuple[EffectiveRows, EffectiveRows]:
        middle = len(self.indexes) // 2
        return self.split_at(middle)

    def split_at(self, index: int) -> tuple[EffectiveRows, EffectiveRows]:
        return replace(self, indexes=self.indexes[:index]), replace(self, indexes=self.indexes[index:])

    def only(self, index: int) -> EffectiveRows:
        """One of the rows alone."""
        return replace(self, indexes=self.indexes[self.indexes == index])

    def is_replaced(self, index: int) -> bool:
        """Whether a later row has the same key."""
        if self.keys is None:
            return False
        later = self.indexes[self.indexes > index]
        return bool((self.keys[later] == self.keys[index]).any())

    def rounds(self, *, merged: bool) -> Iterator[Round]:
        """The rounds, in order; without a key there is one. `merged`: one round, with the last row of each key."""
        if self.keys is None:
            yield Round(self.indexes[:0], self.indexes)
        elif merged:
            yield self._merged_round(self.keys)
        else:
            for indexes in _by_occurrence(self.indexes, self.keys[self.indexes]):
                yield Round(indexes[self.deletions[indexes]], indexes[~self.deletions[indexes]])

    def _merged_round(self, keys: Indexes) -> Round:
        last = self.indexes[last_of_each(keys[self.indexes])]
        # A key that was deleted and came back is a new row: columns that this sink does not write get their defaults.
        return Round(self.indexes[self.deletions[self.indexes]], last[~self.deletions[last]])


def effective_rows(rows: pa.Table, key: Sequence[str], batch_size: int, *, deduplicate: bool) -> EffectiveRows:
    """`key` columns have no nulls. Without a key nothing can be deleted."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    operations = pc.utf8_lower(rows.column(OPERATION_COLUMN))
    is_deletion = pc.equal(operations, "d").combine_chunks().fill_null(False)
    deletions: Indexes = np.asarray(is_deletion.cast(pa.uint8()), dtype=bool)
    indexes = np.arange(rows.num_rows)
    if not key:
        return EffectiveRows(indexes[~deletions], None, deletions)
    keys = key_numbers(rows, key)
    if deduplicate:
        batches = indexes // batch_size
        groups = keys * (batches[-1] + 1 if len(batches) else 1) + batches  # a number per key and batch
        deleted = indexes[deletions]
        indexes = np.union1d(last_of_each(groups), deleted[last_of_each(groups[deleted])])
    return EffectiveRows(indexes, keys, deletions)


def key_numbers(rows: pa.Table, key: Sequence[str]) -> Indexes:
    """A number for each row, the same for rows of one key."""
    import numpy as np

    combined: Indexes | None = None
    for name in key:
        encoded = rows.column(name).combine_chunks().dictionary_encode()
        codes: Indexes = np.asarray(encoded.indices, dtype=np.int64)
        if combined is None:
            combined = codes
        else:  # made dense again, so that many columns do not overflow
            _, combined = np.unique(combined * len(encoded.dictionary) + codes, return_inverse=True)
    if combined is None:
        raise AssertionError("a key has columns")
    return combined


def last_of_each(groups: Indexes) -> Indexes:
    """Indexes of the last member of each group, ascending."""
    import numpy as np

    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True) if len(ordered) else np.zeros(0, dtype=bool)
    last: Indexes = np.sort(order[is_last])
    return last


def last_of_each_run(groups: Indexes, kinds: Indexes) -> Indexes:
    """Indexes of the last member of each run, ascending: members of a group that follow each other with one kind."""
    import numpy as np

    order = np.argsort(groups, kind="stable")
    ordered, kind = groups[order], kinds[order]
    ends = (ordered[1:] != ordered[:-1]) | (kind[1:] != kind[:-1])
    last: Indexes = np.sort(order[np.append(ends, True)[: len(order)]])
    return last


def _by_occurrence(indexes: Indexes, groups: Indexes) -> Iterator[Indexes]:
    """The first of each group, then the second of each, and so on, each in order.

    One key may have all the rows: the cost must not grow with the number of rounds.
    """
    import numpy as np

    occurrences = _occurrences(groups)
    ordered, start = indexes[np.argsort(occurrences, kind="stable")], 0
    for end in np.cumsum(np.bincount(occurrences)):
        yield ordered[start:end]
        start = end


def _occurrences(groups: Indexes) -> Indexes:
    """For each member, how many of its group come before it."""
    import numpy as np

    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1]) if len(ordered) else np.zeros(0, dtype=bool)
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    occurrences = np.empty(len(ordered), dtype=np.int64)
    occurrences[order] = np.arange(len(ordered)) - starts
    return occurrences
