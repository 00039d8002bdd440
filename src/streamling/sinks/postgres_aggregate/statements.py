"""Statements that write rows to the landing table, whose trigger counts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamling.clients.postgres import PostgresSession, PostgresTable, RowRejected, quote
from streamling.plan.types import OPERATION_COLUMN
from streamling.sinks.postgres.columns import TableColumn
from streamling.sinks.postgres.portions import Portions
from streamling.sinks.postgres.rounds import EffectiveRows, last_of_each
from streamling.sinks.postgres.staging import StagedRows
from streamling.sinks.postgres.statements import TableStatements
from streamling.sinks.postgres_aggregate.functions import landed_changes, merge
from streamling.sinks.postgres_aggregate.names import EPOCH_COLUMN
from streamling.sinks.postgres_aggregate.result import ComputedColumn, Result

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres.rounds import Indexes


@dataclass(frozen=True, slots=True)
class AggregateStatements(TableStatements):
    """`table` is the landing table and `key` its key, with `_gs_op`. `epoch` is the number of the epoch to write."""

    target: PostgresTable
    result: Result
    retract: bool
    portions: Portions
    epoch: int = field(default=0, kw_only=True)

    @property
    def merges(self) -> bool:
        return self.retract

    def write(self, session: PostgresSession, rows: pa.Table, selected: EffectiveRows) -> None:
        """The landing table has one row per key and operation: the last one. Earlier ones are added to the result
        without it. With `retract` the last row of a key decides alone."""
        import numpy as np

        if selected.keys is None:
            raise AssertionError("the sink has a key")
        last = selected.indexes[last_of_each(selected.keys[selected.indexes])]
        if not self.retract and len(last) < len(selected):
            earlier = np.setdiff1d(selected.indexes, last, assume_unique=True)
            for portion in self.portions.cut(earlier):
                with self.portions.timed(len(portion)):
                    self._add(session, rows, portion)
        for portion in self.portions.cut(self.sort_by_key(rows, last)):
            with self.portions.timed(len(portion)):
                self._land(session, rows, portion)

    def epoch_committed(self) -> None:
        self.portions.epoch_committed()

    def rejecting_place(
        self, session: PostgresSession, rows: pa.Table, indexes: Indexes, state: str
    ) -> tuple[PostgresTable, str | None]:
        column = self.rejecting_column(session, rows, indexes, state)
        if column is None:
            for computed in self.result.computed:
                if self._rejection(session, rows, indexes, computed) == state:
                    return self.target, computed.name
        return self.table, column

    def _land(self, session: PostgresSession, rows: pa.Table, indexes: Indexes) -> None:
        """Rows of earlier epochs with the same key and operation go first: a trigger on INSERT does not see updates."""
        names = ", ".join(quote(name) for name in (*(c.name for c in self.columns), EPOCH_COLUMN))
        values = ", ".join(_value(column) for column in self.columns)
        keys = [column for column in self.columns if column.name in self.key]
        match = " AND ".join(f"t.{quote(column.name)} = {_value(column)}" for column in keys)
        with StagedRows(session, rows, indexes, self.columns) as staged:
            session.execute(f"DELETE FROM {self.table.sql} t USING {staged.sql} WHERE {match}", staged.values)
            insert = f"INSERT INTO {self.table.sql} ({names}) SELECT {values}, {self.epoch} FROM {staged.sql}"
            session.execute(insert, staged.values)

    def _add(
        self, session: PostgresSession, rows: pa.Table, indexes: Indexes, only: ComputedColumn | None = None
    ) -> None:
        """Add rows to the result as the trigger would."""
        values = ", ".join(f"{_value(column)} AS {quote(column.name)}" for column in self.columns)
        with StagedRows(session, rows, indexes, self.columns) as staged:
            changes = landed_changes(self.result, f"(SELECT {values} FROM {staged.sql})")
            session.execute(merge(self.target, self.result, changes, only=only), staged.values)

    def _rejection(
        self, session: PostgresSession, rows: pa.Table, indexes: Indexes, only: ComputedColumn
    ) -> str | None:
        """The SQLSTATE with which the result rejects one row, if only this column is changed."""
        session.execute("SAVEPOINT value")
        try:
            self._add(session, rows, indexes, only)
            return None
        except RowRejected as error:
            return error.state
        finally:
            session.execute("ROLLBACK TO value; RELEASE value")


def _value(column: TableColumn) -> str:
    staged = f"s.{quote(column.name)}"
    if column.name == OPERATION_COLUMN:  # part of the key: one spelling
        return f"CASE lower({staged}) WHEN 'u' THEN 'u' WHEN 'd' THEN 'd' ELSE 'i' END"
    return column.value_sql(staged)
