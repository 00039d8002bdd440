"""A dynamic table in Postgres: one statement per epoch looks all its values up."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamling.clients.postgres import (
    ConnectionOptions,
    PostgresSession,
    PostgresTable,
    RowRejected,
    create_once,
    create_schema,
    quote,
    table_exists,
)
from streamling.connector.table import Found, TableBackend
from streamling.errors import TABLE_FAILED, PermanentError, TransientError
from streamling.plan.types import DataType, Schema
from streamling.transforms.dynamic_table.copied_rows import CopiedRows
from streamling.transforms.dynamic_table.packed_rows import packed

if TYPE_CHECKING:
    import pyarrow as pa

# A SELECT or an INSERT takes milliseconds; one that waits for a lock of others is retried.
STATEMENT_S = 30.0
# Reading millions of values once, when a cache is filled.
LOAD_S = 600.0
_HINT = (
    "check dynamic_table_backend.postgres: host, port, db, user, password, sslmode. The user needs the privilege to "
    "create the schema and the table, or to use them if they exist"
)
# With so many keys the planner would rather read the whole table, however large it is.
_MANY_KEYS = 1000
_MAX_NAME_BYTES = 63
_DEFAULT_TIME_COLUMN = "updated_at"
_TEXTS = ("text", "character varying")
# `format_type` of the columns whose values have the declared type. Every type can be fetched as text.
_INTEGERS = ("smallint", "integer", "bigint")
_FITTING: Mapping[str, tuple[str, ...]] = {
    "boolean": ("boolean",),
    "int16": _INTEGERS[:1],
    "int32": _INTEGERS[:2],
    "int64": _INTEGERS,
    "float32": ("real",),
    "float64": ("real", "double precision"),
    "decimal": (*_INTEGERS, "numeric"),
    "decimal_arb": (*_INTEGERS, "numeric"),
    "date32": ("date",),
}
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
    AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Where the values are.

    name      the name of the node
    columns   the columns whose values can be fetched
    stamped   whether an added value gets its time, under a lock, so that caches of other processes find it
    pieces    the maximum number of values per statement
    """

    name: str
    server: ConnectionOptions
    table: PostgresTable
    column: str
    time_column: str | None
    columns: Schema
    stamped: bool
    pieces: int


def fitting_types(type_: DataType) -> tuple[str, ...] | None:
    """The types of Postgres whose values can be fetched as this type; None: all of them. KeyError if there are none."""
    if type_.kind == "string":
        return None
    if type_.kind == "timestamp":
        return ("timestamp with time zone",) if type_.zone else ("timestamp without time zone",)
    return _FITTING[type_.kind]


class PostgresBackend(TableBackend):
    """Every `look_up` asks the database, so it sees every insert and delete that was committed before."""

    def __init__(self, options: TableOptions) -> None:
        self.options = options
        self.session = self.make_session(options.server)
        self._lock = threading.Lock()
        self._unique = True
        self._is_missing = False
        self._texts = [f"{quote(name)}::text" for name in (options.column, *options.columns.names)]
        self._rows = CopiedRows(options.name, options.columns)

    def make_session(self, server: ConnectionOptions) -> PostgresSession:
        name = self.options.name
        return PostgresSession(
            server, name=f"dynamic table {name}", condition=TABLE_FAILED, node=name, hint=lambda state: _HINT
        )

    def open(self) -> None:
        with self.errors("prepare"), self._lock:
            create_once(self.session, self._create)
            with self.session.transaction():
                rows = self.session.rows(_COLUMNS, (self.options.table.value,))
        self._check_columns(rows)

    def open_existing(self) -> None:
        """As `open`, but nothing is created: a table that does not exist has no values."""
        with self.errors("read"), self._lock, self.session.transaction():
            rows = self.session.rows(_COLUMNS, (self.options.table.value,))
        self._is_missing = not rows
        if rows:
            self._check_columns(rows)

    def for_preview(self) -> TableBackend:
        from streamling.transforms.dynamic_table.overlay import OverlaidTable

        return OverlaidTable(self)

    def _create(self) -> None:
        """Create the table if it is missing. An existing one is never altered."""
        options, session = self.options, self.session
        if table_exists(session, options.table):
            return
        if options.columns.fields:
            names = ", ".join(options.columns.names)
            raise PermanentError(
                TABLE_FAILED,
                f"the table {options.table} does not exist; create it with the columns {options.column}, {names}",
                node=options.name,
            )
        time_column = options.time_column or _DEFAULT_TIME_COLUMN
        create_schema(session, options.table.schema)
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {options.table.sql} ({quote(options.column)} TEXT PRIMARY KEY, "
            f"{quote(time_column)} TIMESTAMPTZ NOT NULL DEFAULT CLOCK_TIMESTAMP())"
        )
        index = quote(index_name(options.table.name, time_column))
        session.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {options.table.sql} ({quote(time_column)})")

    def _check_columns(self, rows: Sequence[Sequence[Any]]) -> None:
        """`rows`: name and type of each column, and whether no value can be in it twice."""
        options = self.options
        types = {name: type_ for name, type_, _ in rows}
        self._check_column(types, options.column, _TEXTS)
        for field in options.columns:
            self._check_column(types, field.name, fitting_types(field.type), str(field.type))
        self._unique = any(unique for name, _, unique in rows if name == options.column)

    def _check_column(
        self, types: Mapping[str, str], name: str, fitting: Sequence[str] | None, declared: str = "text"
    ) -> None:
        found = types.get(name)
        if found is not None and (fitting is None or found in fitting):
            return
        options = self.options
        what = "has no such column" if found is None else f"has it as {found}, which is not {declared}"
        known = ", ".join(types)
        raise PermanentError(
            TABLE_FAILED,
            f"dynamic table '{options.name}', column '{name}': the table {options.table} {what}; its columns: {known}",
            node=options.name,
        )

    def look_up(self, keys: pa.StringArray) -> Found:
        import pyarrow.compute as pc

        # Postgres has no text with the character NUL, and rejects a statement with it.
        asked = keys.filter(pc.invert(pc.match_substring(keys, "\0")))
        if self._is_missing or not len(asked):
            return self._rows.found(keys, ())
        with self.errors("check"), self._lock, self.session.transaction():
            if self._unique and len(asked) >= _MANY_KEYS:
                self.session.execute("SET LOCAL enable_seqscan = off")
            rows = [self._fetch(piece) for piece in self._pieces(asked)]
        return self._rows.found(keys, rows)

    def _fetch(self, keys: str) -> pa.Table:
        """The rows with these keys."""
        options = self.options
        names = [f"c{place}" for place, _ in enumerate(self._texts)]
        columns = ", ".join(f"{text} AS {name}" for text, name in zip(self._texts, names, strict=True))
        once = "" if self._unique else f"DISTINCT ON ({self._texts[0]}) "
        condition = f"{quote(options.column)} = ANY (%s::text[])"
        rows = f"SELECT {once}{columns} FROM {options.table.sql} WHERE {condition}"
        (values,) = self.session.rows(f"SELECT {packed(names)} FROM ({rows}) r", (keys,))
        return self._rows.unpack(values)

    def sample(self, rows: int) -> pa.Table:
        if self._is_missing:
            return self._rows.read(())
        with self.errors("read"), self._lock, self.session.transaction():
            return self._rows.read(self.copy("true", limit=rows))

    def copy(
        self, condition: str, *values: Any, session: PostgresSession | None = None, limit: int | None = None
    ) -> Iterator[bytes]:
        """The rows that fulfil the condition as lines of CSV, for `CopiedRows`: they may be millions. Call it in a
        transaction."""
        options = self.options
        query = f"SELECT {', '.join(self._texts)} FROM {options.table.sql} WHERE {quote(options.column)} IS NOT NULL"
        end = "" if limit is None else f" LIMIT {limit}"
        statement = f"COPY ({query} AND {condition}{end}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        return (session or self.session).copy_out(statement, values)

    def add(self, keys: pa.StringArray) -> None:
        """In one transaction. In the order of the values: two processes that add the same ones must not wait for each
        other."""
        import pyarrow.compute as pc

        ordered = keys.take(pc.sort_indices(keys))
        with self.errors("fill"), self._lock, self.session.transaction():
            if self.options.stamped:
                self.session.rows("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (str(self.options.table),))
            for piece in self._pieces(ordered):
                self.session.execute(self._insertion(), (piece,))

    def _insertion(self) -> str:
        options = self.options
        column, table = quote(options.column), options.table.sql
        columns, values = column, "v"
        if options.stamped and options.time_column is not None:
            columns, values = f"{column}, {quote(options.time_column)}", "v, CLOCK_TIMESTAMP()"
        # Without a unique index nothing is in conflict.
        new = "" if self._unique else f" WHERE NOT EXISTS (SELECT FROM {table} t WHERE t.{column} = v)"
        return f"INSERT INTO {table} ({columns}) SELECT {values} FROM unnest(%s::text[]) v{new} ON CONFLICT DO NOTHING"

    def _pieces(self, keys: pa.StringArray) -> Iterator[str]:
        size = self.options.pieces
        for start in range(0, len(keys), size):
            yield array_text(keys.slice(start, size))

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Errors that name the table; one about a value is permanent, too."""
        text = f"failed to {what} dynamic table '{self.options.name}'"
        try:
            yield
        except RowRejected as error:
            raise PermanentError(TABLE_FAILED, f"{text}: {error}", node=self.options.name) from error
        except (TransientError, PermanentError) as error:
            if not error.message.startswith(("failed to", "dynamic table")):
                error.message = f"{text}: {error.message}"
                error.args = (error.message,)
            raise

    def with_longer_statements(self) -> PostgresSession:
        """Another session, for one long statement. Close it."""
        return self.make_session(replace(self.options.server, statement_s=LOAD_S))

    @property
    def unique(self) -> bool:
        """Whether the server lets no key be there twice; known when it is open."""
        return self._unique

    def close(self) -> None:
        self.session.close()


def array_text(texts: pa.StringArray) -> str:
    """Texts as Postgres writes an array of them. A list of Python texts takes several times as long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    items = pa.ListArray.from_arrays([0, len(texts)], escaped)
    return '{"' + str(pc.binary_join(items, '","')[0]) + '"}'


def index_name(table: str, column: str) -> str:
    """The name of the index of the time column; a long one is cut and made unique by a hash."""
    name = f"idx_{table}_{column}"
    if len(name) <= _MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: _MAX_NAME_BYTES - 17]}_{digest}"
