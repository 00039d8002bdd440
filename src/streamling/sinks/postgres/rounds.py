"""Which rows of an epoch reach the table, and in which steps.

Rows take effect in their order, in pieces of `batch_size`; with `deduplicate` the last row of a key in a piece stands
for all of them; a deletion before it stays, because what was deleted and comes back is a new row. Where the last row of
a key decides alone, the pieces of an epoch are one step. Where the first one may (`on_conflict: nothing`,
`update_where`), step k has the k-th row of each key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamling.plan.types import OPERATION_COLUMN

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Places = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Round:
    """Places of rows in the table of an epoch: keys that are deleted first, then rows that are inserted or updated."""

    deletes: Places
    upserts: Places


@dataclass(frozen=True, slots=True)
class Effective:
    """The rows that take effect, by their places, in order. Of all rows of the epoch, `keys` has a number for each key,
    and `deleted` whether it is a deletion."""

    places: Places
    keys: Places | None
    deleted: Places

    def __len__(self) -> int:
        return len(self.places)

    def part(self, part: slice) -> Effective:
        return replace(self, places=self.places[part])

    def rounds(self, *, last_wins: bool) -> Iterator[Round]:
        """The steps; without a key all is one."""
        if self.keys is None:
            yield Round(self.places[:0], self.places)
        elif last_wins:
            yield self._merged(self.keys)
        else:
            for step in _by_occurrence(self.places, self.keys[self.places]):
                yield Round(step[self.deleted[step]], step[~self.deleted[step]])

    def _merged(self, keys: Places) -> Round:
        last = self.places[_last_of_each(keys[self.places])]
        # A key that was deleted on the way and came back is a new row: columns we do not write start afresh.
        return Round(self.places[self.deleted[self.places]], last[~self.deleted[last]])


def effective(rows: pa.Table, key: Sequence[str], batch_size: int, *, deduplicate: bool) -> Effective:
    """`key` columns have no nulls. Without a key nothing can be deleted."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lowered = pc.utf8_lower(rows.column(OPERATION_COLUMN))
    deletion = pc.equal(lowered, "d").combine_chunks().fill_null(False)
    deleted: Places = np.asarray(deletion.cast(pa.uint8()), dtype=bool)
    places = np.arange(rows.num_rows)
    if not key:
        return Effective(places[~deleted], None, deleted)
    keys = _groups(rows, key)
    if deduplicate:
        pieces = places // batch_size
        within = keys * (pieces[-1] + 1 if len(pieces) else 1) + pieces
        removals = places[deleted]
        places = np.union1d(_last_of_each(within), removals[_last_of_each(within[removals])])
    return Effective(places, keys, deleted)


def _groups(rows: pa.Table, key: Sequence[str]) -> Places:
    """A number for each row, the same for rows of one key."""
    import numpy as np

    combined: Places | None = None
    for name in key:
        encoded = rows.column(name).combine_chunks().dictionary_encode()
        codes: Places = np.asarray(encoded.indices, dtype=np.int64)
        if combined is None:
            combined = codes
        else:  # dense again, so that many columns do not overflow
            _, combined = np.unique(combined * len(encoded.dictionary) + codes, return_inverse=True)
    if combined is None:
        raise AssertionError("a key has columns")
    return combined


def _last_of_each(groups: Places) -> Places:
    """Places of the last member of each group, ascending."""
    import numpy as np

    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    last = np.append(ordered[1:] != ordered[:-1], True) if len(ordered) else np.zeros(0, dtype=bool)
    found: Places = np.sort(order[last])
    return found


def _by_occurrence(places: Places, groups: Places) -> Iterator[Places]:
    """First the first of each group, then the second ones, and so on, each in order. One key may have all the rows."""
    import numpy as np

    occurrences = _occurrences(groups)
    ordered, start = places[np.argsort(occurrences, kind="stable")], 0
    for end in np.cumsum(np.bincount(occurrences)):
        yield ordered[start:end]
        start = end


def _occurrences(groups: Places) -> Places:
    """Of each member, how many of its group stand before it."""
    import numpy as np

    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.append(True, ordered[1:] != ordered[:-1]) if len(ordered) else np.zeros(0, dtype=bool)
    begin = np.maximum.accumulate(np.where(starts, np.arange(len(ordered)), 0))
    found = np.empty(len(ordered), dtype=np.int64)
    found[order] = np.arange(len(ordered)) - begin
    return found
