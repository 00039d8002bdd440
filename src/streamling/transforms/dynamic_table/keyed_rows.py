"""Rows in memory, found by a text: a table that grows, and that answers for many texts at once.

A Python dictionary of five million texts takes three times the memory, and every garbage collection would visit it.
Here the rows are Arrow tables. Each table, a segment, has an index: the sorted hashes of its keys, and the row of each.
New rows become a segment of their own, and segments of similar size are merged, so there are few. A merge needs the
memory of what is merged once more, so large segments stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.connector.table import Found
from streamling.transforms.dynamic_table.hashing import hash_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamling.transforms.dynamic_table.hashing import Hashes

# A segment is merged with the one before it unless that is more than so many times larger.
_MERGED_FACTOR = 2
# No segment gets more rows by a merge.
_SEGMENT_ROWS = 1 << 20
_ABSENT = -1
_BYTES_PER_ENTRY = 12


@dataclass(frozen=True, slots=True)
class _Segment:
    """`hashes` are sorted; `numbers` has the number of the row of each."""

    rows: pa.Table
    hashes: Hashes
    numbers: NDArray[np.uint32]

    @property
    def keys(self) -> pa.Array:
        return self.rows.column(0).chunk(0)

    def find(self, keys: pa.Array, hashes: Hashes) -> NDArray[np.int64]:
        """The number of the row of each key, or _ABSENT."""
        found = np.full(len(keys), _ABSENT, np.int64)
        order = np.argsort(hashes)  # neighbours in the index are looked up one after the other
        places = np.empty(len(keys), np.int64)
        places[order] = np.searchsorted(self.hashes, hashes[order])
        asked = np.arange(len(keys))
        while len(asked):
            inside = places < len(self.hashes)
            same = np.zeros(len(asked), bool)
            same[inside] = self.hashes[places[inside]] == hashes[asked[inside]]
            asked, places = asked[same], places[same]
            numbers = self.numbers[places]
            equal = pc.equal(self.keys.take(pa.array(numbers)), keys.take(pa.array(asked))).to_numpy(
                zero_copy_only=False
            )
            found[asked[equal]] = numbers[equal]
            asked, places = asked[~equal], places[~equal] + 1  # another text with this hash
        return found


def _segment(rows: pa.Table) -> _Segment:
    rows = rows.combine_chunks()
    hashes = hash_texts(rows.column(0).chunk(0))
    numbers = np.argsort(hashes)
    return _Segment(rows, hashes[numbers], numbers.astype(np.uint32))


def key_schema(columns: Sequence[pa.Field] = ()) -> pa.Schema:
    """The schema of rows with a key and these columns. The keys of all rows may have more than 2 GB."""
    return pa.schema([pa.field("#key", pa.large_string()), *columns])


class KeyedRows:
    """The first column of the rows is the key."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._segments: list[_Segment] = []
        self._loading: list[pa.Table] = []

    def __len__(self) -> int:
        return sum(segment.rows.num_rows for segment in self._segments)

    @property
    def bytes(self) -> int:
        """The memory it takes."""
        return sum(segment.rows.nbytes + _BYTES_PER_ENTRY * segment.rows.num_rows for segment in self._segments)

    def load(self, rows: pa.Table, *, unique: bool) -> None:
        """Add some of the rows of a whole table, which are indexed when they are many, or by `loaded`. `unique`: no key
        occurs twice in the table."""
        if not unique:
            self.add(rows)
            return
        self._loading.append(rows.rename_columns(self._schema.names).cast(self._schema))
        if sum(some.num_rows for some in self._loading) >= _SEGMENT_ROWS:
            self.loaded()

    def loaded(self) -> None:
        if self._loading:
            self._segments.append(_segment(pa.concat_tables(self._loading)))
        self._loading = []

    def add(self, rows: pa.Table) -> None:
        """Add rows, cast to the schema. A row replaces an earlier one with the same key."""
        rows = rows.rename_columns(self._schema.names).cast(self._schema)
        rows = self._without_known(rows) if len(self._schema) == 1 else rows
        if rows.num_rows == 0:
            return
        self._segments.append(_segment(rows))
        while len(self._segments) > 1 and _is_mergeable(*self._segments[-2:]):
            newer, older = self._segments.pop(), self._segments.pop()
            self._segments.append(_merge(older, newer))
        if len(self._schema) > 1 and len(self._segments[-1].hashes) > _SEGMENT_ROWS // 2:
            self._drop_replaced()

    def _drop_replaced(self) -> None:
        """Remove the rows that the last segment replaces, which is too large to be merged with theirs."""
        *older, last = self._segments
        kept = ((segment, _rows_to_keep(segment, last)) for segment in older)
        self._segments = [
            segment if rows is segment.rows else _segment(rows) for segment, rows in kept if rows.num_rows
        ]
        self._segments.append(last)

    def _without_known(self, rows: pa.Table) -> pa.Table:
        """Of rows that have only a key, those that are not there yet."""
        if not self._segments or not rows.num_rows:
            return rows
        keys = pa.concat_arrays(rows.column(0).chunks)
        return rows.filter(pc.invert(self.look_up(keys).present))

    def look_up(self, keys: pa.Array) -> Found:
        keys = keys.cast(self._schema.field(0).type)
        hashes = hash_texts(keys)
        present = np.zeros(len(keys), bool)
        parts: list[pa.Table] = []
        rows = np.full(len(keys), _ABSENT, np.int64)
        known = 0
        for segment in reversed(self._segments):
            asked = np.flatnonzero(~present)
            if not len(asked):
                break
            numbers = segment.find(keys.take(pa.array(asked)), hashes[asked])
            hits = asked[numbers != _ABSENT]
            present[hits] = True
            if len(self._schema) > 1:
                parts.append(segment.rows.take(pa.array(numbers[numbers != _ABSENT])))
                rows[hits] = np.arange(known, known + len(hits))
                known += len(hits)
        return Found(pa.array(present), self._columns(parts, rows))

    def sample(self, rows: int) -> pa.Table:
        """At most this many rows."""
        return pa.concat_tables([self._schema.empty_table(), *(s.rows for s in self._segments)]).slice(0, rows)

    def _columns(self, parts: Sequence[pa.Table], rows: NDArray[np.int64]) -> dict[str, pa.Array]:
        if len(self._schema) == 1:
            return {}
        found = pa.concat_tables([self._schema.empty_table(), *parts]).combine_chunks()
        numbers = pa.array(rows, mask=rows == _ABSENT)
        return {
            field.name: pa.concat_arrays(found.column(field.name).chunks or [pa.array([], field.type)]).take(numbers)
            for field in list(self._schema)[1:]
        }


def _is_mergeable(older: _Segment, newer: _Segment) -> bool:
    rows = older.rows.num_rows, newer.rows.num_rows
    return bool(rows[0] <= _MERGED_FACTOR * rows[1] and sum(rows) <= _SEGMENT_ROWS)


def _merge(older: _Segment, newer: _Segment) -> _Segment:
    return _segment(pa.concat_tables([_rows_to_keep(older, newer), newer.rows]))


def _rows_to_keep(older: _Segment, newer: _Segment) -> pa.Table:
    """The rows that the newer segment does not replace."""
    replaced = newer.find(older.keys, hash_texts(older.keys)) != _ABSENT
    return older.rows.filter(pa.array(~replaced)) if replaced.any() else older.rows
