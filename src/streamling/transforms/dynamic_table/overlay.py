"""A dynamic table in Postgres as a preview sees it: nothing is created or written there, added values stay here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.connector.table import Found, TableBackend
from streamling.transforms.dynamic_table.memory import InMemoryTable

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.transforms.dynamic_table.postgres import PostgresBackend


class OverlaidTable(TableBackend):
    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self._added = InMemoryTable()

    def open(self) -> None:
        self._backend.open_existing()
        self._added.open()

    def look_up(self, keys: pa.StringArray) -> Found:
        import pyarrow.compute as pc

        stored = self._backend.look_up(keys)
        return Found(pc.or_(stored.present, self._added.look_up(keys).present), stored.columns)

    def add(self, keys: pa.StringArray) -> None:
        self._added.add(keys)

    def sample(self, rows: int) -> pa.Table:
        import pyarrow as pa

        stored, added = self._backend.sample(rows), self._added.sample(rows)
        return pa.concat_tables([stored, added], promote_options="default").slice(0, rows)

    def close(self) -> None:
        self._backend.close()
