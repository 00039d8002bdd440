"""Statements that write rows to a table: rows are staged by COPY or, if they are few, as arrays; then one statement
deletes and one upserts, or several if one takes too long (`portions`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamling.clients.postgres import PostgresSession, PostgresTable, RowRejected, quote
from streamling.errors import PermanentError
from streamling.sinks.postgres.columns import TableColumn, stage_values
from streamling.sinks.postgres.keys import fold_values
from streamling.sinks.postgres.portions import Portions

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres.rounds import Indexes

# Up to so many rows, arrays as parameters are faster than COPY into a staging table.
_MAX_ARRAY_ROWS = 500
# Rows encoded at once for COPY.
_CHUNK_ROWS = 20_000
_OUT_OF_RANGE = "22008"
_TRIAL = "_streamling_trial"


@dataclass(frozen=True, slots=True)
class Statements:
    """For one table. `on_conflict` is `update` or `nothing`; `conditions` compare new values with old ones.
    `every_change`: a row is written also if a later row of its key replaces it: triggers see every change."""

    table: PostgresTable
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    on_conflict: str
    conditions: Mapping[str, str]
    every_change: bool
    delete_portions: Portions
    upsert_portions: Portions
    suspects: dict[str, str] = field(default_factory=dict)
    """By SQLSTATE, the column that was rejected last: if many rows are rejected, it is mostly the same column."""

    @property
    def last_wins(self) -> bool:
        """Whether the last row of a key decides alone."""
        return self.on_conflict == "update" and not self.conditions

    @property
    def merges(self) -> bool:
        """Whether rows that a later row of their key replaces are left out."""
        return self.last_wins and not self.every_change

    def upsert(self, session: PostgresSession, rows: pa.Table, indexes: Indexes) -> None:
        """Insert or update the rows at these indexes; no two of them have the same key."""
        names = ", ".join(quote(column.name) for column in self.columns)
        values = ", ".join(c.value_sql(f"s.{quote(c.name)}") for c in self.columns)
        head = f"INSERT INTO {self.table.sql} AS t ({names}) SELECT {values} FROM"
        for portion in self.upsert_portions.cut(self._sort_by_key(rows, indexes)):
            with self.upsert_portions.timed(len(portion)), _StagedRows(session, rows, portion, self.columns) as staged:
                session.execute(f"{head} {staged.sql} {self._conflict}", staged.values)

    def delete(self, session: PostgresSession, rows: pa.Table, indexes: Indexes) -> None:
        columns = tuple(column for column in self.columns if column.name in self.key)
        match = " AND ".join(f"t.{quote(c.name)} = {c.value_sql(f's.{quote(c.name)}')}" for c in columns)
        for portion in self.delete_portions.cut(indexes):
            with self.delete_portions.timed(len(portion)), _StagedRows(session, rows, portion, columns) as staged:
                session.execute(f"DELETE FROM {self.table.sql} t USING {staged.sql} WHERE {match}", staged.values)

    def epoch_committed(self) -> None:
        self.delete_portions.epoch_committed()
        self.upsert_portions.epoch_committed()

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

    def fold_keys(self, session: PostgresSession, rows: pa.Table) -> pa.Table:
        """The rows, with keys made equal where the table treats them as one."""
        for column in self.columns:
            if column.name in self.key and column.fold is not None:
                values = fold_values(session, rows.column(column.name).combine_chunks(), column.fold)
                rows = rows.set_column(rows.schema.get_field_index(column.name), column.name, values)
        return rows

    def _sort_by_key(self, rows: pa.Table, indexes: Indexes) -> Indexes:
        """By key: neighbours in the index are written together, and two writers lock rows in the same order."""
        import numpy as np
        import pyarrow.compute as pc

        if not self.key:
            return indexes
        keys = rows.select(list(self.key)).take(indexes)
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in self.key])
        ordered: Indexes = indexes[np.asarray(order)]
        return ordered

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


class _StagedRows:
    """Rows where a statement can read them, as `s`."""

    def __init__(
        self, session: PostgresSession, rows: pa.Table, indexes: Indexes, columns: tuple[TableColumn, ...]
    ) -> None:
        self._session = session
        self._indexes = indexes
        self._columns = columns
        self._rows = rows.select([column.name for column in columns])
        self._table: str | None = None
        self.sql = ""
        self.values = list[Any]()

    def __enter__(self) -> _StagedRows:
        few = _arrays(self._stage(self._indexes), self._columns) if len(self._indexes) <= _MAX_ARRAY_ROWS else None
        if few is not None:
            self.sql, self.values = few
            return self
        # Named after its columns: with a pooler, another pipeline may have created it in this session.
        shape = ", ".join(f"{quote(column.name)} {column.staging_type}" for column in self._columns)
        name = f"_streamling_{hashlib.sha256(shape.encode()).hexdigest()[:16]}"
        self._session.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({shape}) ON COMMIT DELETE ROWS")
        self._table = f"pg_temp.{name}"
        names = ", ".join(quote(column.name) for column in self._columns)
        self._session.copy(f"COPY {self._table} ({names}) FROM STDIN (FORMAT binary)", self._encode())
        self.sql = f"{self._table} AS s"
        return self

    def _stage(self, indexes: Indexes) -> pa.RecordBatch:
        return stage_values(self._rows.take(indexes), self._columns)

    def _encode(self) -> Iterator[bytes]:
        """In chunks: the server reads one while the next is encoded, and memory holds one."""
        from pgpq import ArrowToPostgresBinaryEncoder

        encoder: Any = None
        for start in range(0, len(self._indexes), _CHUNK_ROWS):
            batch = self._stage(self._indexes[start : start + _CHUNK_ROWS])
            if encoder is None:
                encoder = ArrowToPostgresBinaryEncoder(batch.schema)
                yield encoder.write_header()
            try:
                content = encoder.write_batch(batch)
            except ValueError as error:  # the only values that the encoder rejects; the server does not see them
                raise RowRejected(f"date or time out of range [SQLSTATE {_OUT_OF_RANGE}]", _OUT_OF_RANGE) from error
            yield content
        yield encoder.finish()

    def __exit__(self, kind: object, *_: object) -> None:
        if self._table is not None and kind is None:  # the next statement of the transaction needs it empty
            self._session.execute(f"TRUNCATE {self._table}")


def _rejection(session: PostgresSession, rows: pa.Table, indexes: Indexes, column: TableColumn) -> str | None:
    """The SQLSTATE with which a column rejects the value of one row, tried alone; None if it accepts it."""
    session.execute("SAVEPOINT value")
    try:
        with _StagedRows(session, rows, indexes, (column,)) as staged:
            value, name = column.value_sql(f"s.{quote(column.name)}"), quote(column.name)
            session.execute(f"INSERT INTO pg_temp.{_TRIAL} ({name}) SELECT {value} FROM {staged.sql}", staged.values)
        return None
    except RowRejected as error:
        return error.state
    finally:
        session.execute("ROLLBACK TO value; RELEASE value")


def _arrays(batch: pa.RecordBatch, columns: Sequence[TableColumn]) -> tuple[str, list[Any]] | None:
    """Rows as arrays, one per column: the FROM item and its parameters. None if Python cannot hold the values."""
    types = ", ".join(f"%s::{column.staging_type}[]" for column in columns)
    names = ", ".join(quote(column.name) for column in columns)
    try:
        return f"unnest({types}) AS s ({names})", [column.to_pylist() for column in batch.columns]
    except (ValueError, OverflowError):  # years after 9999
        return None
