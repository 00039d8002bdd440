"""Rows of Postgres as Arrow: texts, cast to the types that the node declares. Many rows are copied as CSV, some at a
time; the rows of some keys are packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from streamling.connector.table import Found
from streamling.errors import TABLE_FAILED, PermanentError
from streamling.plan.types import Schema
from streamling.transforms.dynamic_table.packed_rows import unpack

if TYPE_CHECKING:
    import pyarrow as pa

KEY = "#key"
# Rows that are parsed at a time: while they are lines, each is an object of Python.
_LINES = 100_000


class CopiedRows:
    """`columns` are the columns after the key."""

    def __init__(self, node: str, columns: Schema) -> None:
        self._node = node
        self._columns = columns

    @property
    def fields(self) -> list[pa.Field]:
        import pyarrow as pa

        from streamling.formats.arrow import arrow_type

        return [pa.field(field.name, arrow_type(field.type)) for field in self._columns]

    def read(self, lines: Iterable[bytes]) -> pa.Table:
        import pyarrow as pa

        schema = pa.schema([pa.field(KEY, pa.large_string()), *self.fields])
        return pa.concat_tables([schema.empty_table(), *self.tables(lines)])

    def tables(self, lines: Iterable[bytes]) -> Iterator[pa.Table]:
        """Some rows at a time."""
        for batch in _batches(lines):
            yield self._cast(_parse(batch, self.names))

    @property
    def names(self) -> list[str]:
        return [KEY, *self._columns.names]

    def unpack(self, values: Sequence[bytes | None]) -> pa.Table:
        """The rows in what a packed SELECT returns."""
        return self._cast(unpack(values, self.names))

    def _cast(self, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        for field in self.fields:
            position = rows.schema.get_field_index(field.name)
            try:
                rows = rows.set_column(position, field, rows.column(position).cast(field.type))
            except pa.ArrowInvalid as error:
                message = f"dynamic table '{self._node}', column '{field.name}': {error}"
                raise PermanentError(TABLE_FAILED, message, node=self._node) from error
        return rows

    def found(self, keys: pa.Array, tables: Sequence[pa.Table]) -> Found:
        """The answer for the keys, from the rows that have some of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.concat_tables([self.read(()), *tables]).combine_chunks()
        names = rows.column(KEY).combine_chunks()
        numbers = pc.index_in(keys.cast(pa.large_string()), value_set=names)
        columns = {name: rows.column(name).combine_chunks().take(numbers) for name in self._columns.names}
        return Found(pc.is_valid(numbers), columns)


def _batches(lines: Iterable[bytes]) -> Iterator[bytes]:
    iterator = iter(lines)
    while batch := b"".join(islice(iterator, _LINES)):
        yield batch


def _parse(content: bytes, names: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    return csv.read_csv(
        pa.BufferReader(content),
        csv.ReadOptions(column_names=list(names), block_size=len(content) + 1),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
