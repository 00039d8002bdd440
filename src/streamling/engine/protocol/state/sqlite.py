"""State in a SQLite file: the default, so that a restart resumes without any configuration."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streamling.connector import Json
from streamling.errors import STATE_UNREADABLE, PermanentError, TransientError, UserError
from streamling.retry import retry

# Another process may hold the write lock for a moment; a process that is suspended holds it for longer.
# The caller retries after this.
_BUSY_TIMEOUT_S = 5.0
# Errors that may pass: locked by another process, disk full, I/O error.
_PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")


class SqliteState:
    durable = True

    def __init__(self, path: Path, namespace: str, table: str = "state") -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", table):
            raise UserError(STATE_UNREADABLE, f"state table name {table!r} is not an identifier")
        self._path = path
        self._namespace = namespace
        self._table = table
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            # The switch to WAL fails, instead of waiting, if another process opens the file at the same moment.
            retry(self._prepare, what=f"opening {path}", budget_s=_BUSY_TIMEOUT_S)
            self._inode = path.stat().st_ino
        except (sqlite3.Error, OSError) as error:
            raise PermanentError(
                STATE_UNREADABLE,
                f"cannot open the state file {path}: {error}",
                hint="set state_backend.sqlite.database_path to a writable file",
                cause=error,
            ) from error

    def _prepare(self) -> None:
        with self._errors():
            # WAL lets `state list` read while a run writes; FULL makes a commit survive a power failure.
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (namespace TEXT, key TEXT, data TEXT NOT NULL, "
                "created_at DATETIME DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (namespace, key))"
            )

    def items(self) -> dict[str, Json]:
        with self._lock, self._errors():
            rows = self._connection.execute(
                f"SELECT key, data FROM {self._table} WHERE namespace = ? ORDER BY key", (self._namespace,)
            ).fetchall()
        return {key: json.loads(data) for key, data in rows}

    def get(self, key: str) -> Json:
        with self._lock, self._errors():
            return self._read(key)

    def put(self, values: Mapping[str, Json]) -> None:
        self.exchange({}, values)

    def remove(self, keys: Collection[str]) -> None:
        self.exchange({}, {}, keys)

    def clear(self) -> None:
        with self._lock, self._errors():
            self._connection.execute(f"DELETE FROM {self._table} WHERE namespace = ?", (self._namespace,))

    def exchange(self, expected: Mapping[str, Json], values: Mapping[str, Json], removed: Collection[str] = ()) -> bool:
        with self._lock, self._transaction():
            if any(self._read(key) != value for key, value in expected.items()):
                return False
            for key in removed:
                self._connection.execute(
                    f"DELETE FROM {self._table} WHERE namespace = ? AND key = ?", (self._namespace, key)
                )
            for key, value in values.items():
                self._connection.execute(
                    f"INSERT INTO {self._table} (namespace, key, data) VALUES (?, ?, ?) "
                    "ON CONFLICT (namespace, key) DO UPDATE SET data = excluded.data",
                    (self._namespace, key, json.dumps(value)),
                )
            return True

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _read(self, key: str) -> Json:
        row = self._connection.execute(
            f"SELECT data FROM {self._table} WHERE namespace = ? AND key = ?", (self._namespace, key)
        ).fetchone()
        value: Json = json.loads(row[0]) if row else None
        return value

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._check_file()
            # IMMEDIATE takes the write lock before the first read: what was compared is what is replaced.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # after a full disk SQLite has rolled back already
                    self._connection.execute("ROLLBACK")
                raise

    def _check_file(self) -> None:
        """A removed or replaced file can still be written to, but no later run would read it."""
        try:
            same = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise PermanentError(
                STATE_UNREADABLE,
                f"the state file {self._path} was removed or replaced while the pipeline was running",
                hint="restore it; without it a run starts from the beginning, and the targets should be emptied",
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = f"state file {self._path}: {error}"
            if getattr(error, "sqlite_errorname", "").startswith(_PASSING):
                raise TransientError(STATE_UNREADABLE, text, cause=error) from error
            hint = "restore it from a copy; with a new file a run starts from the beginning: empty the targets as well"
            raise PermanentError(STATE_UNREADABLE, text, hint=hint, cause=error) from error
