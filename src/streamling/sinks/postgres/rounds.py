"""Which rows of an epoch reach the table, and in which steps.

Rows take effect in their order, in pieces of `batch_size`; with `deduplicate` the last row of a key in a piece stands
for all of them; a deletion before it stays, because what was deleted and comes back is a new row. Where the last row
of a key decides alone, the pieces of an epoch are one step. Where the first one may (`on_conflict: nothing`,
`update_where`), step k has the k-th row of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


def rounds(
    rows: pa.Table, key: Sequence[str], batch_size: int, *, deduplicate: bool, last_wins: bool
) -> tuple[list[Round], int]:
    """The steps, and how many rows count as written. `key` columns have no nulls; without a key all is one step."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lowered = pc.utf8_lower(rows.column(OPERATION_COLUMN))
    deletion = pc.equal(lowered, "d").combine_chunks().fill_null(False)
    deleted: Places = np.asarray(deletion.cast(pa.uint8()), dtype=bool)
    places = np.arange(rows.num_rows)
    if not key:
        kept = places[~deleted]
        return [Round(places[:0], kept)], len(kept)
    groups = _groups(rows, key)
    if deduplicate:
        pieces = places // batch_size
        within = groups * (pieces[-1] + 1 if len(pieces) else 1) + pieces
        removals = places[deleted]
        places = np.union1d(_last_of_each(within), removals[_last_of_each(within[removals])])
    count = len(places)
    if last_wins:
        return [_merged(places, groups, deleted)], count
    found = []
    occurrences = _occurrences(groups[places])
    for number in range(int(occurrences.max(initial=-1)) + 1):
        step = places[occurrences == number]
        found.append(Round(step[deleted[step]], step[~deleted[step]]))
    return found, count


def _merged(places: Places, groups: Places, deleted: Places) -> Round:
    last = places[_last_of_each(groups[places])]
    # A key that was deleted on the way and came back is a new row: columns we do not write start afresh.
    return Round(places[deleted[places]], last[~deleted[last]])


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
