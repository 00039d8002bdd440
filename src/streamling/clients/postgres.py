"""A Postgres server: one connection, opened when it is needed and dropped when it may be dead.

No session state outlives a transaction, so poolers in transaction mode can be used.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from streamling import __version__
from streamling.clients.deadline import Deadline, shut_down
from streamling.clients.postgres_errors import Verdict, classify, hint_for, is_untrusted, message_of
from streamling.clients.tls import HOW_TO_TRUST, trusted_certificates
from streamling.errors import SINK_FAILED, Condition, PermanentError, StreamlingError, TransientError
from streamling.spec.secret import Secret

log = logging.getLogger(__name__)
Values = Sequence[Any] | Mapping[str, Any]
"""For `%s`, or for `%(name)s`."""
Hint = Callable[[str | None], str | None]
"""What to do about an error with this SQLSTATE. None: the error comes from the driver, or from the login."""

_CONNECT_S = 10
_VERIFYING = ("verify-ca", "verify-full")
# The driver itself rejects the character NUL, without a SQLSTATE; the server would use this one.
_INVALID_TEXT = "22021"
# One message, so that beginning a transaction takes one round trip. A role or a database may have other values of these
# settings, which would change rows on their way, or lose a commit after the positions have moved. Each statement sees
# what is committed when it begins: what is read after a lock is what the lock protects.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('statement_timeout', '{:.0f}', true), "
    "set_config('idle_in_transaction_session_timeout', '{:.0f}', true), "
    "set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true), "
    "set_config('array_nulls', 'on', true), set_config('extra_float_digits', '3', true), "
    "set_config('bytea_output', 'hex', true), "
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, "
    "current_setting('transaction_read_only')"
)
_TIMED_OUT = "57014"
# The errors if another process creates the same schema or table at the same moment. It can happen once per name:
# schema, table, ledger.
_CREATED_MEANWHILE = ("23505", "42P06", "42P07", "42710")
_CREATE_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach a server. Times in seconds; 0 = no limit, for `connect_s` the default."""

    host: str
    port: int
    database: str
    user: str
    password: Secret = field(repr=False)
    sslmode: str | None
    statement_s: float = 60
    connect_s: float = _CONNECT_S
    idle_s: float = 600
    lifetime_s: float = 1800
    idle_in_transaction_s: float = 60
    """A transaction idle for so long belongs to a process that was suspended; other processes need its locks."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


class RowRejected(Exception):
    """The server rejects a row: the reason, the SQLSTATE, and the column and the constraint if they are known."""

    def __init__(self, reason: str, state: str, column: str | None = None, constraint: str | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.column = column
        self.constraint = constraint


class StatementTimeout(TransientError):
    """A statement did not complete in time."""


class PostgresSession:
    """Runs statements in transactions. Raises TransientError, PermanentError, or RowRejected inside a transaction."""

    def __init__(
        self,
        server: ConnectionOptions,
        *,
        name: str,
        condition: Condition = SINK_FAILED,
        node: str | None = None,
        hint: Hint = hint_for,
        reads_only: bool = False,
    ) -> None:
        """`reads_only`: statements must not change anything, and a server that is not the primary will do."""
        self._server = server
        self._name = name
        self._condition = condition
        self._node = node
        self._hint = hint
        self._reads_only = reads_only
        self._subject = ""
        self._connection: Any = None
        self._deadline = Deadline(None)
        self._opened_at = 0.0
        self._last_used_at = 0.0

    @contextmanager
    def transaction(self) -> Iterator[PostgresSession]:
        """Committed at the end, rolled back if anything is raised."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @contextmanager
    def about(self, subject: object) -> Iterator[None]:
        """Errors raised inside name the subject."""
        before, self._subject = self._subject, f", {subject}"
        try:
            yield
        finally:
            self._subject = before

    def begin(self) -> None:
        """Raises TransientError if the server is read-only: it is no longer the primary."""
        self._ensure_connection()
        try:
            read_only = self._send_begin()
        except BaseException:  # the transaction may have begun, and nothing else would end it
            self._drop()
            raise
        if self._reads_only:
            self.execute("SET TRANSACTION READ ONLY")
        elif read_only != "off":
            self._drop()
            text = f"Postgres at {self._server} is read-only: it is not the primary now"
            raise _mark_remedied(TransientError(self._condition, text, node=self._node))

    def _send_begin(self) -> str:
        server = self._server
        # A pooler accepts the statement at once and answers when it has a free connection: the wait is here.
        with self._statement(server.connect_s or _CONNECT_S) as connection, connection.cursor() as cursor:
            cursor.execute(_BEGIN.format(server.statement_s * 1000, server.idle_in_transaction_s * 1000))
            cursor.nextset()
            *_, read_only = cursor.fetchone()
            return str(read_only)

    def commit(self) -> None:
        self.execute("COMMIT")
        self._last_used_at = time.monotonic()

    def rollback(self) -> None:
        if self._connection is None:
            return
        try:
            self.execute("ROLLBACK")
        except (StreamlingError, RowRejected) as error:  # closing the connection ends the transaction
            log.debug("while rolling back: %s", error)
            self._drop()

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """The rows that the statement returns, if any."""
        with self._statement() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

    def last_rows(self, statements: str) -> list[tuple[Any, ...]]:
        """Run statements without parameters in one round trip; returns the rows of the last one that returns rows."""
        rows: list[tuple[Any, ...]] = []
        with self._statement() as connection, connection.cursor() as cursor:
            cursor.execute(statements, ())
            while True:
                if cursor.description:
                    rows = list(cursor.fetchall())
                if not cursor.nextset():
                    return rows

    def execute(self, statement: str, values: Values = ()) -> int:
        """Returns the number of affected rows."""
        with self._statement() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return max(0, int(cursor.rowcount))

    def copy(self, statement: str, content: Iterable[bytes]) -> None:
        plain = statement.replace("%%", "%")  # it has no parameters
        with self._statement() as connection, connection.cursor() as cursor, cursor.copy(plain) as copy:
            for data in content:
                copy.write(data)

    def copy_out(self, statement: str, values: Values = ()) -> Generator[bytes]:
        """What `COPY .. TO STDOUT` sends, message by message; the values are put into the statement. To be closed."""
        with self._statement() as connection, connection.cursor() as cursor, cursor.copy(statement, values) as copy:
            for data in copy:
                yield bytes(data)

    def columns(self, statement: str) -> Sequence[Any]:
        """The columns that the statement returns, as the driver describes them."""
        with self._statement() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.description or ())

    def close(self) -> None:
        self._drop()

    # The connection

    def _ensure_connection(self) -> None:
        """Connect, unless there is a connection that is not too old. One that was used recently and is dead fails at
        its first statement, which can be retried."""
        now, server = time.monotonic(), self._server
        old = server.lifetime_s and now - self._opened_at > server.lifetime_s
        idle = server.idle_s and now - self._last_used_at > server.idle_s
        if self._connection is not None and (old or idle or self._connection.closed):
            self._drop()
        if self._connection is None:
            self._connection = self._connect()
            self._deadline = Deadline(partial(shut_down, self._connection.fileno()))
            self._opened_at = now
            self._last_used_at = now

    def _connect(self) -> Any:
        import psycopg

        server = self._server
        options: dict[str, Any] = {
            "host": server.host,
            "port": server.port,
            "dbname": server.database,
            "user": server.user,
            "password": server.password.reveal(),
            "connect_timeout": max(1, int(server.connect_s or _CONNECT_S)),
            # COPY data is UTF-8, whatever the encoding of the database; it rejects characters that it does not have.
            "client_encoding": "UTF8",
            "application_name": f"streamling/{__version__} {self._name}",
            # A lost host is noticed within two minutes, whether it owes an answer or an acknowledgement.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "tcp_user_timeout": 120_000,
        }
        if server.sslmode is not None:
            options["sslmode"] = server.sslmode
        if server.sslmode in _VERIFYING and not _has_libpq_authorities() and (trusted := trusted_certificates()):
            options["sslrootcert"] = trusted
        try:
            # Prepared statements belong to a session, and a pooler may give us another one.
            return psycopg.connect(**options, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise self._failure(error, f"Postgres at {server} cannot be reached") from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._deadline.close()
        if connection is not None:
            with suppress(Exception):
                connection.close()

    @contextmanager
    def _statement(self, max_s: float = 0) -> Iterator[Any]:
        """The connection for one statement; errors of the driver become ours. A connection that died silently never
        answers: it is shut down after twice the time that the server has for a statement, or after `max_s`."""
        import psycopg

        if self._connection is None:
            text = f"the connection to Postgres at {self._server} is closed"
            raise TransientError(self._condition, text, node=self._node)
        limit = min(filter(None, (2 * self._server.statement_s, max_s)), default=0.0)
        try:
            with self._deadline.within(limit):
                yield self._connection
        except psycopg.Error as error:
            if self._deadline.expired:
                self._drop()
                text = f"a statement at Postgres {self._server}{self._subject} did not complete within {limit:g} s"
                log.warning("%s; its connection is dropped", text)
                raise _mark_remedied(StatementTimeout(self._condition, text, node=self._node)) from error
            raise self._failure(error, f"Postgres at {self._server}{self._subject}") from error

    def _failure(self, error: Any, what: str) -> Exception:
        import psycopg

        state = error.sqlstate or (_INVALID_TEXT if isinstance(error, psycopg.DataError) else None)
        # Without a SQLSTATE it comes from the driver: errors of the connection are transient, a bug of ours is not.
        ours = not state and not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        verdict = Verdict.PERMANENT if ours else classify(state, str(error))
        dropped = self._connection is not None and (not state or self._connection.broken)
        if dropped:
            self._drop()
        if verdict is Verdict.ROW:
            diagnosis = error.diag
            return RowRejected(
                message_of(error), state or _INVALID_TEXT, diagnosis.column_name, diagnosis.constraint_name
            )
        hint = HOW_TO_TRUST if is_untrusted(str(error)) else self._hint(error.sqlstate)
        text = f"{what}: {message_of(error)}"
        if verdict is Verdict.PERMANENT:
            return PermanentError(self._condition, text, node=self._node, hint=hint, cause=error)
        kind = StatementTimeout if state == _TIMED_OUT else TransientError
        transient = kind(self._condition, text, node=self._node, hint=hint, cause=error)
        return _mark_remedied(transient) if dropped else transient


def _mark_remedied(error: TransientError) -> TransientError:
    """The connection was dropped: the next attempt gets a new one."""
    error.remedied = True
    return error


def _has_libpq_authorities() -> bool:
    """Whether libpq is configured in its own ways which authorities to trust."""
    if "PGSSLROOTCERT" in os.environ:
        return True
    try:
        return (Path.home() / ".postgresql" / "root.crt").exists()
    except RuntimeError:  # an account without a home directory, as in containers
        return False


def quote(name: str) -> str:
    """A name as an identifier in a statement, where `%s` stands for values."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


@dataclass(frozen=True, slots=True)
class PostgresTable:
    schema: str
    name: str

    @property
    def sql(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def value(self) -> str:
        """For a function that takes the name of a table."""
        return self.sql.replace("%%", "%")

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def create_schema(session: PostgresSession, schema: str) -> None:
    """Looked up first: a user without the right to create schemas can use an existing one."""
    if not session.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)):
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of an error that a session raised; None if the error does not come from the server."""
    return error.state if isinstance(error, RowRejected) else getattr(error.__cause__, "sqlstate", None)


def create_once(session: PostgresSession, create: Callable[[], object]) -> None:
    """Run `create`, which creates schema and tables, in a transaction.

    If another process creates the same names at the same moment, it is retried and finds them in place.
    """
    for attempts_left in reversed(range(_CREATE_ATTEMPTS)):
        try:
            with session.transaction():
                create()
            return
        except (RowRejected, PermanentError) as error:  # a transient error is the caller's to retry
            if not attempts_left or sqlstate(error) not in _CREATED_MEANWHILE:
                raise


def table_exists(session: PostgresSession, table: PostgresTable) -> bool:
    ((exists,),) = session.rows("SELECT to_regclass(%s) IS NOT NULL", (table.value,))
    return bool(exists)
