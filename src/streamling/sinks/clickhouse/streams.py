"""The blocks of an epoch, written one after the other; rows that the server rejects are found by halves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamling.clients.clickhouse import ClickHouse
from streamling.clients.clickhouse_errors import ValueRejected
from streamling.connector import BadRow
from streamling.errors import SINK_FAILED
from streamling.sinks.clickhouse.requests import Requests
from streamling.sinks.clickhouse.tables import PairedColumn
from streamling.sinks.streams import Cancelled

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.clickhouse.blocks import EncodedRows, Indexes, ReplacedRows


@dataclass(frozen=True, slots=True)
class Work:
    """What the streams of one write share.

    token      makes the token of an insert, from a digest of its rows
    mutates    deletes are executed, not marked
    fails      one bad row ends the run
    """

    rows: pa.Table
    encoded: EncodedRows
    replaced: ReplacedRows
    key: tuple[PairedColumn, ...]
    requests: Requests
    token: Callable[[bytes], str]
    batch_rows: int
    mutates: bool
    fails: bool
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Stream:
    """Writes some of the rows, over one connection."""

    work: Work
    server: ClickHouse
    indexes: Indexes
    written: int = 0
    bad: list[BadRow] = field(default_factory=list)

    def run(self) -> None:
        from streamling.sinks.clickhouse.blocks import cut

        try:
            for block in cut(self.indexes, self.work.batch_rows):
                if self.work.cancelled.is_set():
                    raise Cancelled(SINK_FAILED, "another stream has failed")
                self._write(block)
                if self.bad and self.work.fails:
                    return
        except BaseException:
            self.work.cancelled.set()
            raise

    def _write(self, block: Indexes) -> None:
        from streamling.sinks.clickhouse.blocks import split_deletions
        from streamling.sinks.clickhouse.deletions import delete_statements

        work = self.work
        if not work.mutates:
            self._insert(block)
            return
        deletes, inserts = split_deletions(work.rows, [column.name for column in work.key], work.encoded, block)
        for statement in delete_statements(work.requests.table, work.key, work.encoded, deletes):
            work.requests.delete(self.server, statement, work.cancelled.is_set)
        self.written += len(block) - len(inserts)
        self._insert(inserts)

    def _insert(self, block: Indexes) -> None:
        """Insert the rows. If the server rejects one of them, insert the first half, then the second, until the row is
        found."""
        from streamling.formats.digests import digest_columns

        if not len(block):
            return
        work, rows = self.work, self.work.encoded.take(block)
        try:
            work.requests.insert(self.server, rows, work.token(digest_columns(rows.columns)), work.cancelled.is_set)
            self.written += len(block)
        except ValueRejected as error:
            if len(block) == 1:
                self._reject(int(block[0]), error)
                return
            middle = len(block) // 2
            for half in (block[:middle], block[middle:]):
                if not (self.bad and work.fails):
                    self._insert(half)

    def _reject(self, index: int, error: ValueRejected) -> None:
        """The row before it that has its key in the batch takes its place."""
        import numpy as np

        work = self.work
        self.bad.append(work.requests.rejected(work.rows, index, error))
        before = work.replaced.before(index)
        if before is not None and not work.fails:
            self._write(np.array([before]))
