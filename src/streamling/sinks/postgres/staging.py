"""Rows where a statement can read them: in a temporary table filled by COPY or, if they are few, as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streamling.clients.postgres import PostgresSession, RowRejected, quote
from streamling.sinks.postgres.columns import TableColumn, stage_values

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres.rounds import Indexes

# Up to so many rows, arrays as parameters are faster than COPY into a staging table.
_MAX_ARRAY_ROWS = 500
# Rows encoded at once for COPY.
_CHUNK_ROWS = 20_000
_OUT_OF_RANGE = "22008"


class StagedRows:
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

    def __enter__(self) -> StagedRows:
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


def _arrays(batch: pa.RecordBatch, columns: Sequence[TableColumn]) -> tuple[str, list[Any]] | None:
    """Rows as arrays, one per column: the FROM item and its parameters. None if Python cannot hold the values."""
    types = ", ".join(f"%s::{column.staging_type}[]" for column in columns)
    names = ", ".join(quote(column.name) for column in columns)
    try:
        return f"unnest({types}) AS s ({names})", [column.to_pylist() for column in batch.columns]
    except (ValueError, OverflowError):  # years after 9999
        return None
