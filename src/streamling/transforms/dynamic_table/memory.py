"""A dynamic table in the memory of the process: empty at the start, lost at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.connector.table import Found, TableBackend

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.transforms.dynamic_table.keyed_rows import KeyedRows


class InMemoryTable(TableBackend):
    def __init__(self) -> None:
        self._rows: KeyedRows | None = None

    def open(self) -> None:
        from streamling.transforms.dynamic_table.keyed_rows import KeyedRows, key_schema

        self._rows = KeyedRows(key_schema())

    def look_up(self, keys: pa.StringArray) -> Found:
        return self._opened().look_up(keys)

    def add(self, keys: pa.StringArray) -> None:
        import pyarrow as pa

        self._opened().add(pa.table([keys], ["key"]))

    def sample(self, rows: int) -> pa.Table:
        return self._opened().sample(rows)

    def _opened(self) -> KeyedRows:
        if self._rows is None:
            raise AssertionError("not open")
        return self._rows
