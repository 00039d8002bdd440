"""JSON lines: one object per line. Fields that the source does not have are ignored, missing ones are null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from streamling.formats.json_lines import parsed_lines
from streamling.formats.json_text import parsed, shown
from streamling.plan.types import OPERATION_COLUMN
from streamling.sources.file.listing import FoundFile
from streamling.sources.file.records import BOM, LineEnds, RecordCutter
from streamling.sources.file.rows import Rows, Shape
from streamling.sources.file.stretches import Stretch
from streamling.sources.file.text_rows import text_rows


def open_cutter(file: FoundFile, stream: Any, at: int, row: int, shape: Shape) -> tuple[RecordCutter, None]:
    """The cutter of a file. Its columns are not known: each line has its own."""
    stream.seek(0)
    begin = len(BOM) if stream.read(len(BOM)) == BOM else 0
    return RecordCutter(file, stream, LineEnds(), max(at, begin), row), None


def rows(stream: Any, stretch: Stretch, shape: Shape) -> Rows:
    # A column that a directory gives is never null; what lines say may be.
    partitions = [name for name, _ in stretch.file.partitions]
    wanted = [f.with_nullable(True) for f in shape.schema if f.nullable or f.name not in partitions]
    yield from text_rows(stream, stretch, LineEnds(), _JsonParser(pa.schema(wanted), shape.words), shape)


@dataclass(frozen=True, slots=True)
class _JsonParser:
    schema: pa.Schema
    words: Mapping[str, str]

    def parse(self, data: bytes) -> pa.RecordBatch:
        _check_objects(data)
        data.decode()  # Arrow does not look
        return self._with_operation(parsed_lines(data, self.schema), data)

    def _with_operation(self, batch: pa.RecordBatch, data: bytes) -> pa.RecordBatch:
        """A row that does not mention the operation is an insert; one that says it is null will be refused."""
        column = batch.column(OPERATION_COLUMN)
        if not column.null_count:
            return batch
        index = batch.schema.get_field_index(OPERATION_COLUMN)
        mark = b'"%s"' % OPERATION_COLUMN.encode()
        if mark not in data:
            return batch.set_column(index, OPERATION_COLUMN, pa.repeat(pa.scalar("i"), batch.num_rows))
        silent = pa.array([not _mentions(line, mark) for line in data.split(b"\n") if line.strip()])
        if len(silent) != batch.num_rows:
            return batch  # the piece will be looked at line by line
        return batch.set_column(index, OPERATION_COLUMN, pc.if_else(silent, "i", column))

    def complaint(self, record: bytes) -> tuple[str, str]:
        try:
            record.decode()
            _check_objects(record)
        except UnicodeDecodeError as error:
            return "decode_error", f"it is not UTF-8: {error.reason} at byte {error.start}"
        except pa.ArrowInvalid as error:
            return "decode_error", str(error)
        for field in self.schema:
            try:
                parsed_lines(record, pa.schema([field]))
            except pa.ArrowInvalid:
                if _is_json(record):
                    value = _shown(record, field.name)
                    return "schema_mismatch", f"column '{field.name}': {value} is no {self.words[field.name]}"
        return "decode_error", "it is not one JSON object, as every line must be"


def _mentions(line: bytes, mark: bytes) -> bool:
    """Whether an object has the operation itself: the word may also stand deeper in it, or be a value."""
    if mark not in line:
        return False
    try:
        return OPERATION_COLUMN in parsed(line.decode())
    except ValueError:
        return True


def _shown(record: bytes, name: str) -> str:
    try:
        return shown(parsed(record.decode()).get(name))
    except ValueError:  # NaN, for instance, which Arrow takes for JSON
        return "its value"


def _is_json(record: bytes) -> bool:
    try:
        pajson.read_json(pa.py_buffer(record), pajson.ReadOptions(use_threads=False, block_size=len(record) + 1))
    except pa.ArrowInvalid:
        return False
    return True


def _check_objects(data: bytes) -> None:
    """Every line begins with a brace: Arrow accepts other things, or fails badly with them."""
    letters = np.frombuffer(data, np.uint8)
    starts = np.concatenate(([0], np.flatnonzero(letters == 10) + 1))
    firsts = letters[starts[starts < len(letters)]]
    if (firsts == ord("{")).all():
        return
    for line in data.split(b"\n"):
        text = line.strip()
        if text and not text.startswith(b"{"):
            array = "; one object per line is needed, not an array of them" if text.startswith(b"[") else ""
            raise pa.ArrowInvalid(f"it is not a JSON object: {text[:80].decode(errors='replace')}{array}")
