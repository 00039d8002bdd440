"""A cache of a dynamic table in Postgres: all its values in memory, and now and then those that were added since.

Values that another process removes stay in the cache. A value that is added by a transaction which commits late is
found only if the writer takes the lock of the table and then uses `clock_timestamp()`, as this process does: its time
is then later than those that were read before.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from streamling.clients.postgres import PostgresSession, PostgresTable, quote
from streamling.connector.table import Found, TableBackend
from streamling.errors import TABLE_FAILED, PermanentError
from streamling.transforms.dynamic_table.copied_rows import CopiedRows
from streamling.transforms.dynamic_table.postgres import PostgresBackend

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.transforms.dynamic_table.keyed_rows import KeyedRows

log = logging.getLogger(__name__)

_SLOW_S = 0.2
_TIMES = ("timestamp with time zone", "timestamp without time zone", "date")
_TIME_TYPE = """
SELECT format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attname = %s AND attnum > 0 AND NOT attisdropped"""


class CachedTable(TableBackend):
    def __init__(self, backend: PostgresBackend, time_column: str, refresh_s: float) -> None:
        """`refresh_s`: the minimum time between two queries for new values."""
        self._backend = backend
        self._options = backend.options
        self._time_column = time_column
        self._refresh_s = refresh_s
        self._copied = CopiedRows(self._options.name, self._options.columns)
        self._lock = threading.Lock()
        self._rows: KeyedRows | None = None
        """None until the first `look_up` has loaded the table."""
        self._watermark: str | None = None
        """The greatest time that was read, as Postgres writes it."""
        self._refreshed_at = 0.0
        self._is_slow = False

    def open(self) -> None:
        self._backend.open()
        with self._backend.errors("prepare"), self._backend.session.transaction() as session:
            types = session.rows(_TIME_TYPE, (self._options.table.value, self._time_column))
        if not types or types[0][0] not in _TIMES:
            raise self._unusable_time(self._options.table, types[0][0] if types else None)

    def _unusable_time(self, table: PostgresTable, type_: str | None) -> PermanentError:
        what = "does not exist" if type_ is None else f"is {type_}, which cannot be compared with the current time"
        return PermanentError(
            TABLE_FAILED,
            f"the cache of dynamic table '{self._options.name}' needs the time column '{self._time_column}', but in "
            f"{table} it {what}",
            node=self._options.name,
            hint="name a column of type TIMESTAMPTZ in 'time_column', or set 'cache: false'",
        )

    def for_preview(self) -> TableBackend:
        """Without the cache: a preview asks for few values."""
        return self._backend.for_preview()

    def look_up(self, keys: pa.StringArray) -> Found:
        with self._lock:
            if self._rows is None:
                self._rows = self._load()
            elif time.monotonic() - self._refreshed_at >= self._refresh_s:
                self._refresh(self._rows)
            return self._rows.look_up(keys)

    def _load(self) -> KeyedRows:
        """All values, as of one moment. The watermark is read first: a value that is added in between is read twice."""
        from streamling.transforms.dynamic_table.keyed_rows import KeyedRows, key_schema

        began = time.monotonic()
        rows = KeyedRows(key_schema(self._copied.fields))
        session = self._backend.with_longer_statements()
        try:
            with self._backend.errors("load"), session.transaction():
                self._watermark = self._latest(session)
                for some in self._copied.tables(self._backend.copy("true", session=session)):
                    rows.load(some, unique=self._backend.unique)
                rows.loaded()
        finally:
            session.close()
        self._refreshed_at = time.monotonic()
        log.info(
            "dynamic table %s: %d values in the cache, %.0f MB, read in %.1f s",
            self._options.name,
            len(rows),
            rows.bytes / 1e6,
            self._refreshed_at - began,
        )
        return rows

    def _refresh(self, rows: KeyedRows) -> None:
        with self._backend.errors("check"), self._backend.session.transaction() as session:
            began = time.monotonic()
            latest = self._latest(session)
            self._warn_if_slow(time.monotonic() - began)
            if latest != self._watermark:
                condition, values = "true", []
                if self._watermark is not None:
                    condition, values = f"{quote(self._time_column)} > %s", [self._watermark]
                for some in self._copied.tables(self._backend.copy(condition, *values)):
                    rows.add(some)
                self._watermark = latest
        self._refreshed_at = time.monotonic()

    def _latest(self, session: PostgresSession) -> str | None:
        column, table = quote(self._time_column), self._options.table.sql
        ((latest,),) = session.rows(f"SELECT max({column})::text FROM {table}")
        return None if latest is None else str(latest)

    def _warn_if_slow(self, seconds: float) -> None:
        """Once: with an index the latest time is found at once."""
        if seconds >= _SLOW_S and not self._is_slow:
            self._is_slow = True
            log.warning(
                "dynamic table %s: looking for new values took %.0f ms; %s may lack an index on '%s'",
                self._options.name,
                seconds * 1000,
                self._options.table,
                self._time_column,
            )

    def add(self, keys: pa.StringArray) -> None:
        import pyarrow as pa

        self._backend.add(keys)
        with self._lock:
            if self._rows is not None and not self._options.columns.fields:
                self._rows.add(pa.table([keys], ["key"]))
            elif self._rows is not None:
                self._refreshed_at = 0.0  # the other columns of a new row are known to the database only

    def sample(self, rows: int) -> pa.Table:
        return self._backend.sample(rows)

    def close(self) -> None:
        self._backend.close()
