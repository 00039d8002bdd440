"""Statements that write rows to a table: rows are staged, then one statement deletes and one upserts, or several if one
takes too long (`portions`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamling.clients.postgres import PostgresSession, PostgresTable, RowRejected, quote
from streamling.errors import PermanentError
from streamling.sinks.postgres.columns import TableColumn
from streamling.sinks.postgres.keys import fold_values
from streamling.sinks.postgres.portions import Portions
from streamling.sinks.postgres.staging import StagedRows

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres.rounds import EffectiveRows, Indexes

_TRIAL = "_streamling_trial"


@dataclass(frozen=True, slots=True)
class TableStatements(ABC):
    """What sinks that write rows to a table have in common."""

    table: PostgresTable
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    suspects: dict[str, str] = field(default_factory=dict, kw_only=True)
    """By SQLSTATE, the column that was rejected last: if many rows are rejected, it is mostly the same column."""

    @property
    @abstractmethod
    def merges(self) -> bool:
        """Whether rows that a later row of their key replaces are left out."""

    @abstractmethod
    def write(self, session: PostgresSession, rows: pa.Table, selected: EffectiveRows) -> None:
        """Write these rows. Raises RowRejected if the server rejects one of them."""

    @abstractmethod
    def epoch_committed(self) -> None: ...

    def rejecting_column(self, session: PostgresSession, rows: pa.Table, indexes: Indexes, state: str) -> str | None:
        """The column whose value is rejected with this SQLSTATE, where the server does not name it.

        Found by inserting the values of the one row at `indexes`, one after the other, into a table with such columns.
        """
        names = ", ".join(quote(column.name) for column in self.columns)
        like = f"SELECT {names} FROM {self.table.sql} WITH NO DATA"
        ordered = sorted(self.columns, key=lambda column: column.name != self.suspects.get(state))
        session.execute("SAVEPOINT trial")
        try:
            session.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS {_TRIAL} ON COMMIT DROP AS {like}")
            rejecting = next((c.name for c in ordered if _rejection(session, rows, indexes, c) == state), None)
        except PermanentError:  # the row is rejected anyway; only its message would have been better
            session.execute("ROLLBACK TO trial; RELEASE trial")
            return None
        session.execute("RELEASE trial")
        if rejecting is not None:
            self.suspects[state] = rejecting
        return rejecting

    def rejecting_place(
        self, session: PostgresSession, rows: pa.Table, indexes: Indexes, state: str
    ) -> tuple[PostgresTable, str | None]:
        """The table and the column that reject the one row at `indexes` with this SQLSTATE."""
        return self.table, self.rejecting_column(session, rows, indexes, state)

    def fold_keys(self, session: PostgresSession, rows: pa.Table) -> pa.Table:
        """The rows, with keys made equal where the table treats them as one."""
        for column in self.columns:
            if column.name in self.key and column.fold is not None:
                values = fold_values(session, rows.column(column.name).combine_chunks(), column.fold)
                rows = rows.set_column(rows.schema.get_field_index(column.name), column.name, values)
        return rows

    def sort_by_key(self, rows: pa.Table, indexes: Indexes) -> Indexes:
        """By key: neighbours in the index are written together, and two writers lock rows in the same order."""
        import numpy as np
        import pyarrow.compute as pc

        if not self.key:
            return indexes
        keys = rows.select(list(self.key)).take(indexes)
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in self.key])
        ordered: Indexes = indexes[np.asarray(order)]
        return ordered


@dataclass(frozen=True, slots=True)
class Statements(TableStatements):
    """For one table. `on_conflict` is `update` or `nothing`; `conditions` compare new values with old ones.
    `every_change`: a row is written also if a later row of its key replaces it: triggers see every change."""

    on_conflict: str
    conditions: Mapping[str, str]
    every_change: bool
    delete_portions: Portions
    upsert_portions: Portions

    @property
    def last_wins(self) -> bool:
        """Whether the last row of a key decides alone."""
        return self.on_conflict == "update" and not self.conditions

    @property
    def merges(self) -> bool:
        """Whether rows that a later row of their key replaces are left out."""
        return self.last_wins and not self.every_change

    def write(self, session: PostgresSession, rows: pa.Table, selected: EffectiveRows) -> None:
        for round_ in selected.rounds(merged=self.merges):
            if len(round_.deletes):
                self.delete(session, rows, round_.deletes)
            if len(round_.upserts):
                self.upsert(session, rows, round_.upserts)

    def upsert(self, session: PostgresSession, rows: pa.Table, indexes: Indexes) -> None:
        """Insert or update the rows at these indexes; no two of them have the same key."""
        names = ", ".join(quote(column.name) for column in self.columns)
        values = ", ".join(c.value_sql(f"s.{quote(c.name)}") for c in self.columns)
        head = f"INSERT INTO {self.table.sql} AS t ({names}) SELECT {values} FROM"
        for portion in self.upsert_portions.cut(self.sort_by_key(rows, indexes)):
            with self.upsert_portions.timed(len(portion)), StagedRows(session, rows, portion, self.columns) as staged:
                session.execute(f"{head} {staged.sql} {self._conflict}", staged.values)

    def delete(self, session: PostgresSession, rows: pa.Table, indexes: Indexes) -> None:
        columns = tuple(column for column in self.columns if column.name in self.key)
        match = " AND ".join(f"t.{quote(c.name)} = {c.value_sql(f's.{quote(c.name)}')}" for c in columns)
        for portion in self.delete_portions.cut(indexes):
            with self.delete_portions.timed(len(portion)), StagedRows(session, rows, portion, columns) as staged:
                session.execute(f"DELETE FROM {self.table.sql} t USING {staged.sql} WHERE {match}", staged.values)

    def epoch_committed(self) -> None:
        self.delete_portions.epoch_committed()
        self.upsert_portions.epoch_committed()

    @property
    def _conflict(self) -> str:
        if not self.key:
            return ""
        target = f"ON CONFLICT ({', '.join(map(quote, self.key))})"
        others = [c.name for c in self.columns if c.name not in self.key]
        if self.on_conflict == "nothing" or not others:
            return f"{target} DO NOTHING"
        changes = ", ".join(f"{quote(name)} = EXCLUDED.{quote(name)}" for name in others)
        conditions = [f"EXCLUDED.{quote(n)} {operator} t.{quote(n)}" for n, operator in self.conditions.items()]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"{target} DO UPDATE SET {changes}{where}"


def _rejection(session: PostgresSession, rows: pa.Table, indexes: Indexes, column: TableColumn) -> str | None:
    """The SQLSTATE with which a column rejects the value of one row, tried alone; None if it accepts it."""
    session.execute("SAVEPOINT value")
    try:
        with StagedRows(session, rows, indexes, (column,)) as staged:
            value, name = column.value_sql(f"s.{quote(column.name)}"), quote(column.name)
            session.execute(f"INSERT INTO pg_temp.{_TRIAL} ({name}) SELECT {value} FROM {staged.sql}", staged.values)
        return None
    except RowRejected as error:
        return error.state
    finally:
        session.execute("ROLLBACK TO value; RELEASE value")
