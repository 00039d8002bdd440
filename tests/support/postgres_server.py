"""A real Postgres for tests, and databases of their own."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
import psycopg

from streamling.dev.passwords import read_password
from streamling.dev.postgres_program import USER
from streamling.dev.stack import Stack
from streamling.spec.settings.blocks import PostgresStateSettings
from support.local_stack import LocalServer


@dataclass(frozen=True)
class Database:
    """One database; it survives restarts of the server."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    name: str

    def settings(self) -> dict[str, object]:
        """As a workspace takes them, for the Postgres sinks of a pipeline."""
        return {f"POSTGRES_SINK__{key}": value for key, value in self._connection("PASS").items()}

    def state_settings(self) -> dict[str, object]:
        """As a workspace takes them, for positions in this database."""
        named = {f"STATE_BACKEND__POSTGRES__{key}": value for key, value in self._connection("PASSWORD").items()}
        return {"STATE_BACKEND__BACKEND_TYPE": "Postgres", **named}

    def state_block(self, **more: object) -> PostgresStateSettings:
        """As `state_backend.postgres` of the settings, for positions in this database."""
        named = {key.lower(): value for key, value in self._connection("PASSWORD").items()}
        return PostgresStateSettings.model_validate(named | more)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(sql, values).fetchall()

    def execute(self, sql: str, *values: object) -> None:
        """Statements, each its own transaction if there is only one."""
        with self.connect() as connection:
            connection.execute(sql, values or None)

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Autocommit; to be closed."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=self.name,
            sslmode="disable",
            connect_timeout=30,
            client_encoding="UTF8",
            autocommit=True,
        )

    def _connection(self, secret: str) -> Mapping[str, object]:
        return {
            "HOST": self.host,
            "PORT": self.port,
            "USER": self.user,
            secret: self.password,
            "DB": self.name,
            "SSLMODE": "disable",
        }


class PostgresServer(LocalServer):
    """A running server that many tests share; who stops, kills or pauses it brings it back."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, "postgres")

    def database(self, encoding: str | None = None) -> Database:
        """A new one, empty; in UTF-8, or in an encoding with which text is sorted by bytes.

        A test that failed may have left the server stopped; then it is started.
        """
        self.start()
        name = f"test_{uuid.uuid4().hex[:12]}"
        more = f" ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'" if encoding else ""
        self._database("postgres").execute(f"CREATE DATABASE {name}{more}")
        return self._database(name)

    def shut_down_at_once(self) -> None:
        """As `pg_ctl stop -m immediate` does: every process ends where it is, and the next start recovers."""
        super().kill()

    def kill(self) -> None:
        """As a power cut does: every process of it, the first one before it could start others."""
        self.pause()
        first = self._paused[0]
        self._paused = [first, *first.children(recursive=True)]
        self._signal(signal.SIGKILL)
        while any(_lives(process) for process in self._paused):
            time.sleep(0.05)

    def _database(self, name: str) -> Database:
        return Database("127.0.0.1", self._port, USER, read_password(self.site), name)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
