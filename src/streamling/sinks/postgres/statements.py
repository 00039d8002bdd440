"""Rows to a table: staged by COPY or, if they are few, as arrays; then one statement each for deletes and upserts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamling.formats.postgres import Session, Table, quoted
from streamling.sinks.postgres.columns import TableColumn, staged
from streamling.sinks.postgres.keys import folded

if TYPE_CHECKING:
    import pyarrow as pa

# Below this, arrays as parameters are quicker than a table to copy into.
_FEW = 500


@dataclass(frozen=True, slots=True)
class Statements:
    """`on_conflict` is `update` or `nothing`; `conditions` compare new values with old ones."""

    table: Table
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    on_conflict: str
    conditions: Mapping[str, str]

    def upsert(self, session: Session, rows: pa.Table) -> None:
        batch = staged(self._sorted(rows), self.columns)
        names = ", ".join(quoted(column.name) for column in self.columns)
        values = ", ".join(c.value_sql(f"s.{quoted(c.name)}") for c in self.columns)
        head = f"INSERT INTO {self.table.sql} AS t ({names}) SELECT {values} FROM"
        with _Source(session, batch, self.columns) as source:
            session.execute(f"{head} {source.sql} {self._conflict}", source.values)

    def delete(self, session: Session, rows: pa.Table) -> None:
        columns = tuple(column for column in self.columns if column.name in self.key)
        match = " AND ".join(f"t.{quoted(c.name)} = {c.value_sql(f's.{quoted(c.name)}')}" for c in columns)
        with _Source(session, staged(rows, columns), columns) as source:
            session.execute(f"DELETE FROM {self.table.sql} t USING {source.sql} WHERE {match}", source.values)

    def told_apart(self, session: Session, rows: pa.Table) -> pa.Table:
        """The rows with equal keys where the table takes them for one."""
        for column in self.columns:
            if column.name in self.key and column.fold is not None:
                values = folded(session, rows.column(column.name).combine_chunks(), column.fold)
                rows = rows.set_column(rows.schema.get_field_index(column.name), column.name, values)
        return rows

    def _sorted(self, rows: pa.Table) -> pa.Table:
        """By key: neighbours in the index come together, and two writers lock rows in one order."""
        import pyarrow.compute as pc

        if not self.key:
            return rows
        return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in self.key]))

    @property
    def _conflict(self) -> str:
        if not self.key:
            return ""
        target = f"ON CONFLICT ({', '.join(map(quoted, self.key))})"
        others = [c.name for c in self.columns if c.name not in self.key]
        if self.on_conflict == "nothing" or not others:
            return f"{target} DO NOTHING"
        changes = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in others)
        conditions = [f"EXCLUDED.{quoted(n)} {operator} t.{quoted(n)}" for n, operator in self.conditions.items()]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"{target} DO UPDATE SET {changes}{where}"


class _Source:
    """Rows where a statement can read them, as `s`."""

    def __init__(self, session: Session, batch: pa.RecordBatch, columns: Sequence[TableColumn]) -> None:
        self._session, self._batch, self._columns = session, batch, columns
        self._table: str | None = None
        self.sql, self.values = "", list[Any]()

    def __enter__(self) -> _Source:
        few = _arrays(self._batch, self._columns) if self._batch.num_rows <= _FEW else None
        if few is not None:
            self.sql, self.values = few
            return self
        # Named by what is in it: behind a pooler, another pipeline may have made it in this session.
        shape = ", ".join(f"{quoted(column.name)} {column.staged}" for column in self._columns)
        name = f"_streamling_{hashlib.sha256(shape.encode()).hexdigest()[:16]}"
        self._session.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({shape}) ON COMMIT DELETE ROWS")
        self._table = f"pg_temp.{name}"
        names = ", ".join(quoted(column.name) for column in self._columns)
        self._session.copy(f"COPY {self._table} ({names}) FROM STDIN (FORMAT binary)", _encoded(self._batch))
        self.sql = f"{self._table} AS s"
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._table is not None and kind is None:  # another step of the transaction may need it empty
            self._session.execute(f"TRUNCATE {self._table}")


def _arrays(batch: pa.RecordBatch, columns: Sequence[TableColumn]) -> tuple[str, list[Any]] | None:
    """Rows as arrays, one per column: the FROM item, and the values for it. None if Python has no such values."""
    types = ", ".join(f"%s::{column.staged}[]" for column in columns)
    names = ", ".join(quoted(column.name) for column in columns)
    try:
        return f"unnest({types}) AS s ({names})", [column.to_pylist() for column in batch.columns]
    except (ValueError, OverflowError):  # its years end at 9999
        return None


def _encoded(batch: pa.RecordBatch) -> list[bytes]:
    from pgpq import ArrowToPostgresBinaryEncoder

    encoder = ArrowToPostgresBinaryEncoder(batch.schema)
    return [encoder.write_header(), encoder.write_batch(batch), encoder.finish()]
