"""State in Postgres: for processes that share positions, or have no disk of their own.

Every write to a namespace takes its lock first, so what was compared is what is replaced. The lock ends with the
transaction: a process that dies or is suspended blocks others only as long as its connection exists.

The answer to a COMMIT may be lost, and then it is unknown whether the transaction was committed. Such an exchange is
remembered. On the retry, the lock makes it wait until the first attempt has ended. If the expected values are still
there, the first attempt was rolled back, and the retry does the exchange. If not, but all values that it was to write
are there, the first attempt was committed: this process is not fenced. Another process could have written the same
values only by finishing the same epoch, which is equivalent.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamling.clients.postgres import (
    ConnectionOptions,
    PostgresSession,
    PostgresTable,
    RowRejected,
    create_once,
    create_schema,
    table_exists,
)
from streamling.connector import Json
from streamling.errors import STATE_UNREADABLE, PermanentError, TransientError, UserError
from streamling.retry import retry

if TYPE_CHECKING:
    from streamling.spec.settings.blocks import PostgresStateSettings

# The engine retries for a minute; one statement on a server that does not answer must not use up that time.
_STATEMENT_S = 10
# A transaction takes milliseconds. An idle one belongs to a suspended process, while others wait for its lock.
_IDLE_IN_TRANSACTION_S = 10
_HINT = (
    "check state_backend.postgres: host, port, db, user, password, sslmode. "
    "The user needs the privilege to create the schema and the table, or to use them if they exist"
)
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS {table} (namespace TEXT, key TEXT, data JSONB NOT NULL, "
    "created_at TIMESTAMPTZ DEFAULT now(), PRIMARY KEY (namespace, key))"
)
# Parameters: n the namespace, e and w expected keys and their values, k and v keys and values to put, r keys to remove.
_SAME = """
    SELECT NOT EXISTS (
        SELECT FROM unnest(%(e)s::text[], %(w)s::text[]) AS wanted (key, data)
        LEFT JOIN {table} AS found ON found.namespace = %(n)s AND found.key = wanted.key
        WHERE nullif(found.data, 'null') IS DISTINCT FROM nullif(wanted.data::jsonb, 'null')
    ) AS same"""
_EXCHANGE = f"""
WITH compared AS ({_SAME}
), removed AS (
    DELETE FROM {{table}} WHERE namespace = %(n)s AND key = ANY (%(r)s::text[]) AND (SELECT same FROM compared)
), put AS (
    INSERT INTO {{table}} (namespace, key, data)
    SELECT %(n)s, key, data::jsonb FROM unnest(%(k)s::text[], %(v)s::text[]) AS given (key, data)
    WHERE (SELECT same FROM compared)
    ON CONFLICT (namespace, key) DO UPDATE SET data = excluded.data
)
SELECT same FROM compared"""


class PostgresState:
    durable = True

    def __init__(self, block: PostgresStateSettings, namespace: str) -> None:
        for name in (block.state_schema_name, block.state_table_name):
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise UserError(STATE_UNREADABLE, f"state schema or table name {name!r} is not an identifier")
        self._place = f"the state in Postgres at {block.host}:{block.port}/{block.db}"
        self._session = state_session(block, namespace)
        self._table = PostgresTable(block.state_schema_name, block.state_table_name)
        self._namespace = namespace
        self._lock = threading.Lock()
        self._unanswered: dict[str, Any] | None = None
        budget_s = float(block.acquire_timeout_secs)
        retry(self._prepare, what=f"opening {self._place}", budget_s=budget_s)

    def items(self) -> dict[str, Json]:
        with self._transaction():
            rows = self._session.rows(
                f'SELECT key, data::text FROM {self._table.sql} WHERE namespace = %s ORDER BY key COLLATE "C"',
                [self._namespace],
            )
        return {key: json.loads(data) for key, data in rows}

    def get(self, key: str) -> Json:
        with self._transaction():
            rows = self._session.rows(
                f"SELECT data::text FROM {self._table.sql} WHERE namespace = %s AND key = %s", [self._namespace, key]
            )
        value: Json = json.loads(rows[0][0]) if rows else None
        return value

    def put(self, values: Mapping[str, Json]) -> None:
        self.exchange({}, values)

    def remove(self, keys: Collection[str]) -> None:
        self.exchange({}, {}, keys)

    def clear(self) -> None:
        with self._transaction():
            self._take_lock()
            self._session.execute(f"DELETE FROM {self._table.sql} WHERE namespace = %s", [self._namespace])

    def exchange(self, expected: Mapping[str, Json], values: Mapping[str, Json], removed: Collection[str] = ()) -> bool:
        parameters = {
            "n": self._namespace,
            "e": list(expected),
            "w": [json.dumps(value) for value in expected.values()],
            "k": list(values),
            "v": [json.dumps(value) for value in values.values()],
            "r": [key for key in removed if key not in values],
        }
        with self._lock, self._errors():
            try:
                self._session.begin()
                self._take_lock()
                done = self._ask(_EXCHANGE, parameters)
                if not done and parameters == self._unanswered:
                    done = self._ask(_SAME, _effect(parameters))
            except BaseException:
                self._session.rollback()
                raise
            self._unanswered = parameters if done else None
            self._session.commit()
            self._unanswered = None
            return done

    def close(self) -> None:
        with self._lock:
            self._session.close()

    def _prepare(self) -> None:
        with self._lock, self._errors():
            create_once(self._session, self._make)

    def _make(self) -> None:
        """Create the table if it does not exist: a user without the privilege to create can use an existing one."""
        if table_exists(self._session, self._table):
            return
        self._session.rows(_LOCK, [f"streamling state {self._table.sql}"])
        if not table_exists(self._session, self._table):  # no other process has created it in the meantime
            create_schema(self._session, self._table.schema)
            self._session.execute(_CREATE_TABLE.format(table=self._table.sql))

    def _take_lock(self) -> None:
        self._session.rows(_LOCK, [f"streamling state {self._table.sql} {self._namespace}"])

    def _ask(self, statement: str, parameters: Mapping[str, Any]) -> bool:
        ((answer,),) = self._session.rows(statement.format(table=self._table.sql), parameters)
        return bool(answer)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, self._errors(), self._session.transaction():
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except RowRejected as error:
            text = f"{self._place}: {error}"
            if error.state.startswith("23"):  # another process creates the table at the same moment
                raise TransientError(STATE_UNREADABLE, text, cause=error) from error
            raise PermanentError(STATE_UNREADABLE, text, cause=error) from error


def state_session(block: PostgresStateSettings, name: str) -> PostgresSession:
    """A session with the server that stores the positions."""
    server = ConnectionOptions(
        host=block.host,
        port=block.port,
        database=block.db,
        user=block.user,
        password=block.password,
        sslmode=block.sslmode.value,
        statement_s=_STATEMENT_S,
        connect_s=block.acquire_timeout_secs,
        idle_in_transaction_s=_IDLE_IN_TRANSACTION_S,
    )
    return PostgresSession(server, name=name, condition=STATE_UNREADABLE, hint=lambda _: _HINT)


def _effect(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """The state after an exchange, as expected keys and values."""
    keys, values, removed = exchange["k"], exchange["v"], exchange["r"]
    return {**exchange, "e": [*keys, *removed], "w": [*values, *(None for _ in removed)]}
