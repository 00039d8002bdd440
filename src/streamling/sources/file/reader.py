"""Reads parts of files, in the driver or in an executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Json
from streamling.plan.types import Schema
from streamling.sources.file.listing import file_system
from streamling.sources.file.storage import check_unchanged, naming, open_unchanged, storage_errors
from streamling.sources.file.stretches import stretches_of

if TYPE_CHECKING:
    import pyarrow as pa


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

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow]:
        with naming(self.node):
            yield from self._read(part)

    def _read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow]:
        from streamling.sources.file.rows import Shape

        shape, module = Shape(self.columns), format_module(self.format)
        system, _ = file_system(self.path)
        for stretch in stretches_of(part):
            with storage_errors(stretch.file.path):
                with open_unchanged(system, stretch.file) as stream:
                    yield from module.rows(stream, stretch, shape)
                check_unchanged(system, stretch.file)
