"""One version of a lookup."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamling.errors import LOOKUP, PermanentError

if TYPE_CHECKING:
    import pyarrow as pa

# Up to this size a table is a part of the query for Spark, and sending it to the executors takes no job.
_SMALL_BYTES = 1 << 20
_VERSION_DIGITS = 32


@dataclass(frozen=True)
class Snapshot:
    """The rows of a lookup, sorted by its key; no key is NULL, none occurs twice."""

    table: pa.Table
    key: tuple[str, ...]

    @cached_property
    def version(self) -> str:
        """The same for the same rows, whatever their order was."""
        import pyarrow as pa

        sink = _HashSink()
        with pa.ipc.new_stream(pa.PythonFile(sink, "w"), self.table.schema) as writer:
            writer.write_table(self.table)
        return sink.digest()

    @property
    def small(self) -> bool:
        return bool(self.table.nbytes <= _SMALL_BYTES)

    def restrict(self, values: Iterable[Mapping[str, pa.ChunkedArray]]) -> pa.Table:
        """At least the rows whose key columns have these values, for one of the maps; not many more."""
        import pyarrow.compute as pc

        mask = None
        for by_column in values:
            found = None
            for name, wanted in by_column.items():
                found_one = pc.is_in(self.table.column(name), value_set=pc.unique(wanted))
                found = found_one if found is None else pc.and_(found, found_one)
            mask = found if mask is None else pc.or_(mask, found)
        return self.table if mask is None else self.table.filter(mask)


def make_snapshot(name: str, table: pa.Table, key: Sequence[str]) -> Snapshot:
    """The rows as a snapshot; rows without a key never match, and are left out. Raises PermanentError if two rows have
    the same key."""
    import pyarrow.compute as pc

    for column in key:
        if table.column(column).null_count:
            table = table.filter(pc.is_valid(table.column(column)))
    order = pc.sort_indices(table, sort_keys=[(column, "ascending") for column in key])
    table = table.take(order).combine_chunks()
    _check_unique(name, table, key)
    return Snapshot(table, tuple(key))


def _check_unique(name: str, table: pa.Table, key: Sequence[str]) -> None:
    import pyarrow.compute as pc

    rows = table.num_rows
    if rows < 2:
        return
    same = None
    for column in key:
        values = table.column(column)
        equal = pc.equal(values.slice(1), values.slice(0, rows - 1))
        same = equal if same is None else pc.and_(same, equal)
    first = pc.index(same, True).as_py()
    if first >= 0:
        double = ", ".join(f"{column} = {table.column(column)[first].as_py()!r}" for column in key)
        raise PermanentError(
            LOOKUP,
            f"two rows of the lookup have the key {double}: a row of a stream must have one match at most",
            node=name,
            hint="remove one of the rows, or choose another 'primary_key'",
        )


class _HashSink(io.RawIOBase):
    """A file that only computes the hash of what is written."""

    def __init__(self) -> None:
        super().__init__()
        self._hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._hash.update(view)
        return int(view.nbytes)

    def digest(self) -> str:
        return self._hash.hexdigest()[:_VERSION_DIGITS]
