"""Reads parts of files, in the driver or in an executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Counted, Json, Reached
from streamling.plan.types import Schema
from streamling.sources.file.listing import SourceFile, file_system
from streamling.sources.file.parts import Position, file_parts
from streamling.sources.file.storage import check_unchanged, naming_node, open_unchanged, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sources.file.rows import Rows

# The most bytes that are read again if an epoch has no more room: an eighth of an epoch's bytes, or less.
_POSITION_BYTES = 8 << 20


def format_module(format_: str) -> ModuleType:
    """The module of a format, with its `open_cutter` and `rows`."""
    from streamling.sources.file import avro_files, csv_files, json_files, parquet_files

    return {"csv": csv_files, "parquet": parquet_files, "avro": avro_files}.get(format_, json_files)


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads a list of file parts. Before and after reading, a file must be the version that was cut."""

    node: str
    path: str
    format: str
    columns: Schema
    declared: frozenset[str] = frozenset()
    """Columns whose types are not inferred."""

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Reached]:
        with naming_node(self.node):
            yield from self._read(part)

    def _read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Counted | Reached]:
        from streamling.sources.file.rows import RowShape

        shape, module = RowShape(self.columns, self.declared), format_module(self.format)
        system, _ = file_system(self.path)
        for file_part in file_parts(part):
            with storage_errors(file_part.file.path):
                with open_unchanged(system, file_part.file) as stream:
                    for item in self._thin_out(module.rows(stream, file_part, shape)):
                        if isinstance(item, Position):
                            # The caller may stop here, so this may be the last check of the file.
                            check_unchanged(system, file_part.file)
                            yield Reached(place_of(file_part.file, item))
                        else:
                            yield item
                check_unchanged(system, file_part.file)
            yield Reached(place_of(file_part.file, file_part.end_position))

    def _thin_out(self, items: Rows) -> Rows:
        """The same items, with positions only after so many bytes: each position costs a check of the file."""
        size = 0
        for item in items:
            if isinstance(item, Counted):
                pass
            elif not isinstance(item, Position):
                size += len(item.raw or b"") + len(item.message) if isinstance(item, BadRow) else item.nbytes
            elif size >= _POSITION_BYTES:
                size = 0
            else:
                continue
            yield item


def place_of(file: SourceFile, position: Position) -> Json:
    """A position as a reader reports it; a path is enough, because a file is only once in a slice."""
    return [file.path, position.at, position.row]
