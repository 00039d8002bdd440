"""The sink's positions, in the database it writes to: one row per state key.

A transaction locks these rows first: if two processes own a key, one waits for the other, and then sees what the other
has committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamling.clients.postgres import PostgresSession, PostgresTable, RowRejected
from streamling.connector import Applied, Epoch, Json, Slice, compare_positions
from streamling.errors import SINK_FAILED, PermanentError

NAME = "_streamling_ledger"


class Ledger:
    def __init__(self, schema: str, generation: str, sink: str) -> None:
        self.table = PostgresTable(schema, NAME)
        self._owner = (generation, sink)

    def create(self, session: PostgresSession) -> None:
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self.table.sql} (generation TEXT, sink TEXT, key TEXT, "
            "position JSONB NOT NULL, abandoned TEXT[] NOT NULL DEFAULT '{}', "
            "updated_at TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (generation, sink, key))"
        )

    def applied(self, session: PostgresSession, slices: Sequence[Slice]) -> Applied:
        """Does not wait for other owners."""
        keys = [s.key for s in slices]
        return compare_positions({key: position for key, position, _ in self._read(session, keys, "")}, slices)

    def lock(self, session: PostgresSession, epoch: Epoch) -> Applied | None:
        """Lock the rows of an epoch's keys. None: the epoch was abandoned and must not be written any more."""
        slices = sorted(epoch.slices, key=lambda s: s.key)  # in one order, so that two owners cannot deadlock
        if slices:
            keys, starts = [s.key for s in slices], [json.dumps(s.start) for s in slices]
            self._execute(
                session,
                f"INSERT INTO {self.table.sql} (generation, sink, key, position) "
                "SELECT %s, %s, key, position FROM unnest(%s::text[], %s::jsonb[]) AS new (key, position) "
                "ON CONFLICT DO NOTHING",
                (*self._owner, keys, starts),
            )
        entries = self._read(session, [s.key for s in slices], "FOR UPDATE")
        if any(epoch.id in abandoned for _, _, abandoned in entries):
            return None
        return compare_positions({key: position for key, position, _ in entries}, slices)

    def move(self, session: PostgresSession, epoch: Epoch) -> None:
        keys, ends = [s.key for s in epoch.slices], [json.dumps(s.end) for s in epoch.slices]
        if keys:
            self._execute(session, self._set_positions, (keys, ends, *self._owner))

    @property
    def _set_positions(self) -> str:
        return (
            f"UPDATE {self.table.sql} l SET position = new.position, abandoned = '{{}}', updated_at = now() "
            "FROM unnest(%s::text[], %s::jsonb[]) AS new (key, position) "
            "WHERE l.generation = %s AND l.sink = %s AND l.key = new.key"
        )

    def positions(self, session: PostgresSession) -> dict[str, Json]:
        with self._errors():
            entries: list[Any] = session.rows(
                f"SELECT key, position FROM {self.table.sql} WHERE generation = %s AND sink = %s", self._owner
            )
        return dict(entries)

    def rewind(self, session: PostgresSession, positions: Mapping[str, Json]) -> None:
        texts = [json.dumps(position) for position in positions.values()]
        self._execute(session, self._set_positions, (list(positions), texts, *self._owner))

    def abandon(self, session: PostgresSession, epoch: Epoch) -> None:
        """The rows must be locked."""
        self._execute(
            session,
            f"UPDATE {self.table.sql} SET abandoned = array_append(abandoned, %s) "
            "WHERE generation = %s AND sink = %s AND key = ANY(%s)",
            (epoch.id, *self._owner, [s.key for s in epoch.slices]),
        )

    def _read(self, session: PostgresSession, keys: Sequence[str], lock: str) -> list[tuple[str, Json, list[str]]]:
        with self._errors():
            entries: list[Any] = session.rows(
                f"SELECT key, position, abandoned FROM {self.table.sql} "
                f"WHERE generation = %s AND sink = %s AND key = ANY(%s) ORDER BY key {lock}",
                (*self._owner, list(keys)),
            )
        return entries

    def _execute(self, session: PostgresSession, statement: str, values: Sequence[Any]) -> None:
        with self._errors():
            session.execute(statement, values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """If the table of positions rejects a row, no row of the input is at fault."""
        try:
            yield
        except RowRejected as error:
            text = f"the table of positions {self.table} was changed, or cannot hold them: {error}"
            raise PermanentError(SINK_FAILED, text, node=self._owner[1], cause=error) from error
