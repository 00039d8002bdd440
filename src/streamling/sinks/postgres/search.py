"""Writes the rows of an epoch, and finds those that the server rejects: by halves, until each of them is alone.

A row that breaks a foreign key may refer to a row of the same epoch that is written after it, because the halves
separate them. Such rows are tried again at the end. Other sinks may write what they refer to as well: until these have
finished the epoch (`final`), nothing is searched, and the sink waits for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from streamling.clients.postgres import PostgresSession, RowRejected
from streamling.clients.postgres_errors import is_foreign_key, reject_reason
from streamling.connector import BadRow, WaitsForOthers
from streamling.sinks.postgres.rounds import EffectiveRows
from streamling.sinks.postgres.statements import TableStatements
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres.rounds import Indexes

log = logging.getLogger(__name__)
# Each rejected row takes some statements: a long search logs its progress, so that it does not look stuck.
_REMIND_S = 10.0
# A value does not fit, or its domain rejects it: the server does not name the column.
_COLUMN_UNKNOWN = ("22", "23502", "23514")
# With `on_error: fail` so many broken foreign keys are enough; fewer may all be due to the order of writing.
_ENOUGH_ORPHANS = 100
SAVEPOINT = "SAVEPOINT half"


@dataclass(frozen=True, slots=True)
class _Rejected:
    """A row that the server has rejected, when it was written alone."""

    bad: BadRow
    index: int
    orphan: bool
    """It breaks a foreign key."""


class RowSearch:
    def __init__(self, node: NodeSpec, session: PostgresSession, statements: TableStatements, *, final: bool) -> None:
        self._node = node
        self._session = session
        self._statements = statements
        self._final = final
        self._has_savepoint = True

    def write(self, rows: pa.Table, selected: EffectiveRows) -> tuple[BadRow, ...]:
        """Write the rows; returns those that the server rejects. With `on_error: fail` the first one is enough.

        The caller has set `SAVEPOINT`. Raises WaitsForOthers.
        """
        rejected = self._halves(rows, selected)
        if self._node.options.on_error is OnError.FAIL:
            found = list(islice(_until_decided(rejected), _ENOUGH_ORPHANS))
        else:
            found = list(self._logged(rejected, rows.num_rows))
        orphans = [r for r in found if r.orphan]
        others = [r for r in found if not r.orphan]
        if not (others and self._node.options.on_error is OnError.FAIL):
            others += self._retry(rows, selected, orphans)
        return tuple(r.bad for r in sorted(others, key=lambda r: r.index))

    def _retry(self, rows: pa.Table, selected: EffectiveRows, orphans: list[_Rejected]) -> list[_Rejected]:
        """Write rows without the rows they refer to again, as long as that helps; returns those that stay rejected.

        A row that a later row of its key replaces would come too late: it is left out where only the last one counts,
        and stays rejected elsewhere.
        """
        replaced = [r for r in orphans if selected.is_replaced(r.index)]
        left = [r for r in orphans if r not in replaced]
        while left:
            again = [r for orphan in left for r in self._halves(rows, selected.only(orphan.index))]
            if len(again) == len(left):
                break
            left = again
        return left if self._statements.merges else left + replaced

    def _logged(self, rejected: Iterable[_Rejected], total: int) -> Iterator[_Rejected]:
        logged_at = time.monotonic()
        for count, one in enumerate(rejected, start=1):
            yield one
            if time.monotonic() - logged_at > _REMIND_S:
                logged_at = time.monotonic()
                message = "%s: searching for rejected rows, %d of %d so far"
                log.warning(message, self._node.described(), count, total)

    def _halves(self, rows: pa.Table, selected: EffectiveRows) -> Iterator[_Rejected]:
        """Write the rows. If the server rejects one of them, write the first half, then the second, until the row is
        found."""
        if not len(selected):
            return
        if not self._has_savepoint:
            self._session.execute(SAVEPOINT)
        self._has_savepoint = False
        try:
            self._statements.write(self._session, rows, selected)
            self._session.execute("RELEASE half")
            return
        except RowRejected as error:
            self._session.execute("ROLLBACK TO half; RELEASE half")  # otherwise the next one would be nested in it
            if is_foreign_key(error.state) and not self._final:
                raise WaitsForOthers(str(error)) from error
            if len(selected) == 1:
                yield self._rejected(rows, selected.indexes, error)
                return
            log.debug("%s: one of %d rows is rejected: %s", self._node.described(), len(selected), error)
        for half in selected.halves():
            yield from self._halves(rows, half)

    def _rejected(self, rows: pa.Table, indexes: Indexes, error: RowRejected) -> _Rejected:
        from streamling.formats.json import json_row

        table, column = self._statements.table, error.column
        if column is None and error.state.startswith(_COLUMN_UNKNOWN):
            table, column = self._statements.rejecting_place(self._session, rows, indexes, error.state)
        named = f", column '{column}'" if column else ""
        text = f"table {table}{named}: {error}"
        index = int(indexes[0])
        cause = f"{error.state} {column or error.constraint or ''}".strip()
        bad = BadRow(reject_reason(error.state), text, {}, row=json_row(rows, index), index=index, cause=cause)
        return _Rejected(bad, index, is_foreign_key(error.state))


def _until_decided(rejected: Iterable[_Rejected]) -> Iterator[_Rejected]:
    """Up to the first row that is certainly rejected, for another reason than a foreign key."""
    for one in rejected:
        yield one
        if not one.orphan:
            return
