"""Dead letters in a Postgres table: one row per letter, its id as the key."""

from __future__ import annotations

import base64
import itertools
import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from streamling.clients.postgres import (
    ConnectionOptions,
    PostgresSession,
    PostgresTable,
    RowRejected,
    StatementTimeout,
    create_once,
    create_schema,
    table_exists,
)
from streamling.connector import Json
from streamling.errors import LETTERS_FAILED, PermanentError
from streamling.letters.letter import UPDATED, Letter, LetterBatch
from streamling.letters.store import NewestLetters
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import PostgresLetters
from streamling.spec.settings import Settings

# Names and types of the columns. The last two tell apart the attempts of an epoch; they are not part of the letter.
_COLUMNS = {
    "id": "TEXT",
    "application_id": "TEXT",
    "node": "TEXT",
    "node_type": "TEXT",
    "stage": "TEXT",
    "reason_code": "TEXT",
    "reason_text": "TEXT",
    "raw": "BYTEA",
    "raw_key": "BYTEA",
    "headers": "JSONB",
    "row": "JSONB",
    "source": "JSONB",
    "epoch": "BIGINT",
    "timestamp": "TIMESTAMPTZ",
    "now_us": "BIGINT",
    "status": "TEXT",
    "input": "TEXT",
    "batch": "TEXT",
    "attempt": "TEXT",
}
_LETTER = tuple(_COLUMNS)[:-2]
_KEPT = ("id", "status")
"""Columns that a replay of the epoch does not change."""
_JSON = frozenset(name for name, type_ in _COLUMNS.items() if type_ == "JSONB")
# Of a letter without its contents.
_SHORT_COLUMNS = {"raw": "NULL", "raw_key": "NULL", "headers": "NULL", "row": "NULL", "source": '"source"::text'}
# Rows of one statement: a letter may have megabytes.
_ROWS, _BYTES = 500, 8 << 20
# JSONB and TEXT have no character NUL. In JSON, such a value becomes an object with this one field.
_WRAPPED = "json_in_base64"
_NUL_SIGN = "\N{SYMBOL FOR NULL}"


class LetterTable:
    def __init__(self, node: NodeSpec, destination: PostgresLetters, settings: Settings) -> None:
        from streamling.sinks.postgres import connection_options

        server: ConnectionOptions = connection_options(settings.postgres_connection(node.name), settings.postgres_sink)
        self._table = PostgresTable(destination.schema_, destination.table)
        self.place = f"table {self._table} of Postgres at {server}"
        self._node = node
        self._session = PostgresSession(server, name="dead letters", condition=LETTERS_FAILED, node=node.name)
        self._written: dict[str, str] = {}
        """By stage: the last epoch of which this process has stored letters."""

    def open(self) -> None:
        def create() -> None:
            if table_exists(self._session, self._table):
                return
            create_schema(self._session, self._table.schema)
            columns = ", ".join(f'"{name}" {type_}' for name, type_ in _COLUMNS.items())
            self._session.execute(f"CREATE TABLE IF NOT EXISTS {self._table.sql} ({columns}, PRIMARY KEY (id))")
            index = f"{self._table.name}_batch"
            quoted = '"' + index.replace('"', '""').replace("%", "%%") + '"'
            self._session.execute(f"CREATE INDEX IF NOT EXISTS {quoted} ON {self._table.sql} (batch)")

        with self._rows_accepted():
            create_once(self._session, create)

    def put(self, batch: LetterBatch, letters: Iterator[Letter]) -> int:
        attempt, count = uuid.uuid4().hex, 0
        with self._rows_accepted(), self._session.transaction():
            for chunk in _chunks(letters):
                count += len(chunk)
                self._insert(chunk, batch.id, attempt)
            gone = f"DELETE FROM {self._table.sql} WHERE batch = %s AND attempt <> %s AND node = %s"
            self._session.execute(gone, [batch.id, attempt, batch.node.ref])
        self._written[batch.stage] = batch.epoch.id
        return count

    def _insert(self, letters: list[Letter], batch: str, attempt: str) -> None:
        names = ", ".join(f'"{name}"' for name in _COLUMNS)
        places = ", ".join(f"%s::{type_}" for type_ in _COLUMNS.values())
        values = [value for letter in letters for value in (*_values(letter), batch, attempt)]
        changes = ", ".join(f'"{name}" = excluded."{name}"' for name in _COLUMNS if name not in _KEPT)
        self._session.execute(
            f"INSERT INTO {self._table.sql} ({names}) VALUES {', '.join([f'({places})'] * len(letters))} "
            f"ON CONFLICT (id) DO UPDATE SET {changes}",
            values,
        )

    def remove(self, batch: LetterBatch) -> None:
        if self._written.pop(batch.stage, None) == batch.epoch.id:
            with self._rows_accepted(), self._session.transaction():
                self._session.execute(
                    f"DELETE FROM {self._table.sql} WHERE batch = %s AND node = %s", [batch.id, batch.node.ref]
                )

    def read(self) -> Iterator[Letter]:
        with self._rows_accepted(), self._session.transaction():
            if not table_exists(self._session, self._table):
                return
            columns = ", ".join(f'"{name}"::text' if name in _JSON else f'"{name}"' for name in _LETTER)
            query = f"SELECT {columns} FROM {self._table.sql} ORDER BY timestamp, epoch, node, id"
            rows = self._session.rows(query)
        for row in rows:
            yield _letter(dict(zip(_LETTER, row, strict=True)))

    def newest(self, application: str, most: int, deadline: float) -> NewestLetters:
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            return NewestLetters((), complete=False)
        try:
            rows = self._newest_rows(application, most + 1, left_ms)
        except StatementTimeout:
            return NewestLetters((), complete=False)
        found = [_letter(dict(zip(_LETTER, row, strict=True))) for row in rows[:most]]
        return NewestLetters(found, complete=len(rows) <= most)

    def _newest_rows(self, application: str, most: int, timeout_ms: int) -> list[tuple[Any, ...]]:
        with self._rows_accepted(), self._session.transaction():
            if not table_exists(self._session, self._table):
                return []
            columns = ", ".join(_SHORT_COLUMNS.get(name, f'"{name}"') for name in _LETTER)
            query = (
                f"SELECT {columns} FROM {self._table.sql} WHERE application_id = %s "
                "ORDER BY timestamp DESC, epoch DESC LIMIT %s"
            )
            self._session.execute(f"SET LOCAL statement_timeout = {timeout_ms}")
            return self._session.rows(query, [application, most])

    def update(self, letters: Collection[Letter]) -> None:
        changes = ", ".join(f'"{name}" = new."{name}"' for name in UPDATED)
        names = ", ".join(f'"{name}"' for name in ("id", *UPDATED))
        arrays = ", ".join(f"%s::{_COLUMNS[name]}[]" for name in ("id", *UPDATED))
        values = [dict(zip(_LETTER, _values(letter), strict=True)) for letter in letters]
        with self._rows_accepted(), self._session.transaction():
            self._session.execute(
                f"UPDATE {self._table.sql} AS old SET {changes} FROM unnest({arrays}) AS new ({names}) "
                "WHERE old.id = new.id",
                [[row[name] for row in values] for name in ("id", *UPDATED)],
            )

    def close(self) -> None:
        self._session.close()

    def _rows_accepted(self) -> _RowsAccepted:
        return _RowsAccepted(self._node, self.place)


class _RowsAccepted:
    """The table has other columns than ours, or a constraint: without the letter the row would be lost."""

    def __init__(self, node: NodeSpec, place: str) -> None:
        self._node = node
        self._place = place

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RowRejected):
            message = f"{self._place} does not accept a dead letter: {error}"
            raise PermanentError(LETTERS_FAILED, message, node=self._node.name) from error


def _chunks(letters: Iterator[Letter]) -> Iterator[list[Letter]]:
    """A few letters at a time, bounded by number and by size."""
    chunk: list[Letter] = []
    size = 0
    for letter in itertools.chain(letters, [None]):
        if chunk and (letter is None or len(chunk) == _ROWS or size > _BYTES):
            yield chunk
            chunk, size = [], 0
        if letter is not None:
            chunk.append(letter)
            size += len(letter.raw or b"") + len(letter.raw_key or b"") + len(str(letter.row))


def _values(letter: Letter) -> Iterator[object]:
    content = letter.to_json() | {"raw": letter.raw, "raw_key": letter.raw_key}
    for name in _LETTER:
        value: Any = content.get(name)
        if name in _JSON:
            yield _json(value)
        else:
            yield _storable(value) if isinstance(value, str) else value


def _storable(text: str) -> str:
    """Text as a table can hold it: half of a surrogate pair is written as an escape."""
    return text.replace("\0", _NUL_SIGN).encode(errors="backslashreplace").decode()


def _json(value: Json) -> str | None:
    if value is None:
        return None
    text = json.dumps(value)
    if "\\u0000" not in text and "\\ud" not in text:
        return text
    # Perhaps a NUL or half of a surrogate pair, which JSONB rejects.
    return json.dumps({_WRAPPED: base64.b64encode(text.encode()).decode()})


def _letter(row: Mapping[str, Any]) -> Letter:
    loaded = {name: _from_json(row[name]) for name in _JSON}
    headers = loaded["headers"]
    timestamp: datetime = row["timestamp"]
    return Letter(
        **{
            **row,
            **loaded,
            "raw": None if row["raw"] is None else bytes(row["raw"]),
            "raw_key": None if row["raw_key"] is None else bytes(row["raw_key"]),
            "headers": None if headers is None else tuple((name, _bytes(value)) for name, value in headers),
            "timestamp": timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
    )


def _from_json(text: str | None) -> Any:
    value = json.loads(text) if text is not None else None
    if isinstance(value, dict) and value.keys() == {_WRAPPED}:
        return json.loads(base64.b64decode(value[_WRAPPED]))
    return value


def _bytes(text: str | None) -> bytes | None:
    return base64.b64decode(text) if text is not None else None
