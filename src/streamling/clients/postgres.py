"""A Postgres server: one connection, opened when it is needed and thrown away when it may be dead.

Nothing of a session outlives a transaction, so poolers that hand out connections by transaction are welcome.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamling import __version__
from streamling.clients.deadline import Deadline
from streamling.clients.postgres_errors import Verdict, classify, hint_for, is_untrusted, message_of
from streamling.clients.tls import HOW_TO_TRUST, trusted_certificates
from streamling.errors import SINK_FAILED, Condition, PermanentError, StreamlingError, TransientError
from streamling.retry import retry
from streamling.spec.secret import Secret

log = logging.getLogger(__name__)
Values = Sequence[Any] | Mapping[str, Any]
"""For `%s`, or for `%(name)s`."""
Hint = Callable[[str | None], str | None]
"""What to do about an error with this SQLSTATE. None: it has come from the driver, or at the login."""

_CONNECT_S = 10
_VERIFYING = ("verify-ca", "verify-full")
# The driver does not even send what the server would refuse: the character NUL.
_NO_TEXT = "22021"
# In one message, so that a transaction takes one answer to begin. What a role or a database may have set otherwise
# would change values on their way, or let a commit be forgotten whose positions have moved.
_BEGIN = (
    "BEGIN; SELECT set_config('statement_timeout', '{:.0f}', true), "
    "set_config('idle_in_transaction_session_timeout', '{:.0f}', true), "
    "set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true), "
    "set_config('array_nulls', 'on', true), set_config('extra_float_digits', '3', true), "
    "set_config('bytea_output', 'hex', true), "
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, "
    "current_setting('transaction_read_only')"
)
_TIMED_OUT = "57014"
# Two processes make a schema or a table at the same moment: what the later one is told. That may happen once with each
# name, of the schema, the table and the ledger.
_CREATED_MEANWHILE = ("23505", "42P06", "42P07", "42710")
_CREATE_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """How to reach it. Times in seconds; 0 = without limit, of a connection as long as is usual."""

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
    """A transaction that stands still that long belongs to a process that was suspended: its locks are wanted."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


class RowRejected(Exception):
    """A row is not taken: why, with which SQLSTATE, and the column if that is known."""

    def __init__(self, why: str, state: str, column: str | None = None) -> None:
        super().__init__(why)
        self.state = state
        self.column = column


class StatementTimeout(TransientError):
    """A statement was not done in the time it has."""


class PostgresSession:
    """Statements, in transactions. Errors are ours: Transient, Permanent, or RowRefused inside of a transaction."""

    def __init__(
        self,
        server: PostgresServer,
        *,
        name: str,
        condition: Condition = SINK_FAILED,
        node: str | None = None,
        hint: Hint = hint_for,
    ) -> None:
        self._server = server
        self._name = name
        self._condition = condition
        self._node = node
        self._hint = hint
        self._subject = ""
        self._connection: Any = None
        self._deadline = Deadline(None)
        self._opened = self._used = 0.0

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
        """Errors inside of it name what they are about."""
        before, self._subject = self._subject, f", {subject}"
        try:
            yield
        finally:
            self._subject = before

    def begin(self) -> None:
        """Raises TransientError on a server that only reads: it is not the primary any longer."""
        self._fresh()
        try:
            read_only = self._begun()
        except BaseException:  # what has begun may be of no use, and nobody would end it
            self._drop()
            raise
        if read_only != "off":
            self._drop()
            text = f"Postgres at {self._server} is read only: it is no primary now"
            raise _remedied(TransientError(self._condition, text, node=self._node))

    def _begun(self) -> str:
        server = self._server
        # A pooler takes the word at once, and gives a connection when it has one: that is waited for here.
        with self._bounded(server.connect_s or _CONNECT_S) as connection, connection.cursor() as cursor:
            cursor.execute(_BEGIN.format(server.statement_s * 1000, server.idle_in_transaction_s * 1000))
            cursor.nextset()
            *_, read_only = cursor.fetchone()
            return str(read_only)

    def commit(self) -> None:
        self.execute("COMMIT")
        self._used = time.monotonic()

    def rollback(self) -> None:
        if self._connection is None:
            return
        try:
            self.execute("ROLLBACK")
        except (StreamlingError, RowRejected) as error:  # with the connection goes the transaction
            log.debug("while rolling back: %s", error)
            self._drop()

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """What the statement gives; nothing if it is none that gives rows."""
        with self._bounded() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

    def execute(self, statement: str, values: Values = ()) -> int:
        """Returns the number of rows that were touched."""
        with self._bounded() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return max(0, int(cursor.rowcount))

    def copy(self, statement: str, content: Iterable[bytes]) -> None:
        plain = statement.replace("%%", "%")  # nothing is put into it
        with self._bounded() as connection, connection.cursor() as cursor, cursor.copy(plain) as copy:
            for piece in content:
                copy.write(piece)

    def close(self) -> None:
        self._drop()

    # The connection

    def _fresh(self) -> None:
        """A connection that is not too old; one that was used lately and does not answer is found out by its first
        statement, which can be tried again."""
        now, server = time.monotonic(), self._server
        old = server.lifetime_s and now - self._opened > server.lifetime_s
        idle = server.idle_s and now - self._used > server.idle_s
        if self._connection is not None and (old or idle or self._connection.closed):
            self._drop()
        if self._connection is None:
            self._connection = self._connected()
            self._deadline = Deadline(self._connection.fileno())
            self._opened = self._used = now

    def _connected(self) -> Any:
        import psycopg

        server = self._server
        options: dict[str, Any] = {
            "host": server.host,
            "port": server.port,
            "dbname": server.database,
            "user": server.user,
            "password": server.password.reveal(),
            "connect_timeout": max(1, int(server.connect_s or _CONNECT_S)),
            # What we copy is UTF-8, whatever the database keeps; it says which characters it does not have.
            "client_encoding": "UTF8",
            "application_name": f"streamling/{__version__} {self._name}",
            # A machine that is gone is found out within two minutes, whether it owes an answer or an acknowledgement.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "tcp_user_timeout": 120_000,
        }
        if server.sslmode is not None:
            options["sslmode"] = server.sslmode
        if server.sslmode in _VERIFYING and not _names_authorities() and (trusted := trusted_certificates()):
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
    def _bounded(self, most_s: float = 0) -> Iterator[Any]:
        """The connection, for one statement. A link that has died in silence never answers: it is cut after twice the
        time that the server has for a statement, or after `most_s`."""
        import psycopg

        if self._connection is None:
            text = f"the connection to Postgres at {self._server} is gone"
            raise TransientError(self._condition, text, node=self._node)
        limit = min(filter(None, (2 * self._server.statement_s, most_s)), default=0.0)
        try:
            with self._deadline.within(limit):
                yield self._connection
        except psycopg.Error as error:
            if self._deadline.expired:
                self._drop()
                text = f"a statement at Postgres {self._server}{self._subject} did not complete within {limit:g} s"
                log.warning("%s; its connection is thrown away", text)
                raise _remedied(StatementTimeout(self._condition, text, node=self._node)) from error
            raise self._failure(error, f"Postgres at {self._server}{self._subject}") from error

    def _failure(self, error: Any, what: str) -> Exception:
        import psycopg

        state = error.sqlstate or (_NO_TEXT if isinstance(error, psycopg.DataError) else None)
        # Without a state it comes from the driver: what it says of the connection passes, a fault of ours does not.
        ours = not state and not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        found = Verdict.PERMANENT if ours else classify(state, str(error))
        dropped = self._connection is not None and (not state or self._connection.broken)
        if dropped:
            self._drop()
        if found is Verdict.ROW:
            return RowRejected(message_of(error), state or _NO_TEXT, error.diag.column_name)
        hint = HOW_TO_TRUST if is_untrusted(str(error)) else self._hint(error.sqlstate)
        text = f"{what}: {message_of(error)}"
        if found is Verdict.PERMANENT:
            return PermanentError(self._condition, text, node=self._node, hint=hint, cause=error)
        kind = StatementTimeout if state == _TIMED_OUT else TransientError
        passing = kind(self._condition, text, node=self._node, hint=hint, cause=error)
        return _remedied(passing) if dropped else passing


def _remedied(error: TransientError) -> TransientError:
    """The connection was thrown away, and the next attempt gets another one."""
    error.remedied = True
    return error


def _names_authorities() -> bool:
    """Whether the driver has been told in its own ways whom to trust."""
    if "PGSSLROOTCERT" in os.environ:
        return True
    try:
        return (Path.home() / ".postgresql" / "root.crt").exists()
    except RuntimeError:  # an account without a home, as containers have it
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
    """Asked for first: who may not create schemas may still use one that is there."""
    if not session.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)):
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")


def sqlstate(error: BaseException) -> str | None:
    """Of an error that a session has raised; None if the server did not say anything."""
    return error.state if isinstance(error, RowRejected) else getattr(error.__cause__, "sqlstate", None)


def create_once(session: PostgresSession, create: Callable[[], object]) -> None:
    """Run what creates schema and tables, in a transaction. Several processes may do so at the same moment: the later
    ones find a name taken, and everything of that name in place at the next attempt."""

    def attempt() -> None:
        try:
            with session.transaction():
                create()
        except (RowRejected, PermanentError) as error:
            if sqlstate(error) not in _CREATED_MEANWHILE:
                raise
            raise _CreatedMeanwhile(error) from error

    try:
        retry(attempt, what="creating tables", attempts=_CREATE_ATTEMPTS, quiet=True)
    except _CreatedMeanwhile as error:
        raise error.refusal from error


class _CreatedMeanwhile(TransientError):
    """Another process has created the same thing at the same moment."""

    def __init__(self, refusal: RowRejected | PermanentError) -> None:
        super().__init__(SINK_FAILED, str(refusal))
        self.refusal = refusal


def table_exists(session: PostgresSession, table: PostgresTable) -> bool:
    ((found,),) = session.rows("SELECT to_regclass(%s) IS NOT NULL", (table.value,))
    return bool(found)
