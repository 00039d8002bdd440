"""Reads parts of files, in the driver or in an executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Json, Reached
from streamling.plan.types import Schema
from streamling.sources.file.listing import FoundFile, file_system
from streamling.sources.file.storage import check_unchanged, naming, open_unchanged, storage_errors
from streamling.sources.file.stretches import Position, stretches_of

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sources.file.rows import Rows

# What is read too much where there is no more room: an eighth of an epoch's bytes, or less.
_BYTES_APART = 8 << 20


def format_module(format_: str) -> ModuleType:
    """Where a format is read: `open_cutter` and `rows` of its module."""
    from streamling.sources.file import avro_files, csv_files, json_files, parquet_files

    return {"csv": csv_files, "parquet": parquet_files, "avro": avro_files}.get(format_, json_files)


@dataclass(frozen=True, slots=True)
class FileReader:
    """A part is a list of stretches. A file must be the one that was cut, before it is read and after."""

    node: str
    path: str
    format: str
    columns: Schema

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Reached]:
        with naming(self.node):
            yield from self._read(part)

    def _read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Reached]:
        from streamling.sources.file.rows import Shape

        shape, module = Shape(self.columns), format_module(self.format)
        system, _ = file_system(self.path)
        for stretch in stretches_of(part):
            with storage_errors(stretch.file.path):
                with open_unchanged(system, stretch.file) as stream:
                    for item in self._counted(module.rows(stream, stretch, shape)):
                        if isinstance(item, Position):
                            # The reading may end here, so that this is the last look at the file.
                            check_unchanged(system, stretch.file)
                            yield Reached(place_of(stretch.file, item))
                        else:
                            yield item
                check_unchanged(system, stretch.file)
            yield Reached(place_of(stretch.file, stretch.behind))

    def _counted(self, items: Rows) -> Rows:
        """The same, with positions only behind so many bytes: each costs a look at the file."""
        size = 0
        for item in items:
            if not isinstance(item, Position):
                size += len(item.raw or b"") + len(item.message) if isinstance(item, BadRow) else item.nbytes
            elif size >= _BYTES_APART:
                size = 0
            else:
                continue
            yield item


def place_of(file: FoundFile, position: Position) -> Json:
    """As a reader says what it has reached: files come only once in a slice."""
    return [file.path, position.at, position.row]
