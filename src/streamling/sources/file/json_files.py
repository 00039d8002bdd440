"""JSON lines: one object per line. Fields that the source does not have are ignored, missing ones are null."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from streamling.formats.json_differences import has_tiny_numbers
from streamling.formats.json_lines import parse_lines
from streamling.formats.json_text import format_value, parse
from streamling.plan.types import OPERATION_COLUMN
from streamling.sources.file.json_numbers import FloatColumns
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.parts import FilePart
from streamling.sources.file.records import BOM, LineEnds, RecordCutter
from streamling.sources.file.rows import Rows, RowShape
from streamling.sources.file.text_rows import inexact_value, text_rows


def open_cutter(file: SourceFile, stream: Any, at: int, row: int, shape: RowShape) -> tuple[RecordCutter, None]:
    """The cutter of a file. Its columns are not known: each line may have others."""
    stream.seek(0)
    begin = len(BOM) if stream.read(len(BOM)) == BOM else 0
    return RecordCutter(file, stream, LineEnds(), max(at, begin), row), None


def rows(stream: Any, part: FilePart, shape: RowShape) -> Rows:
    # A column from a directory name is never null; a column from a line may be.
    partitions = [name for name, _ in part.file.partitions]
    columns = [f.with_nullable(True) for f in shape.schema if f.nullable or f.name not in partitions]
    parser = _JsonParser(pa.schema(columns), shape.type_names, shape.inferred, frozenset(partitions))
    yield from text_rows(stream, part, LineEnds(), parser, shape)


class _JsonParser:
    def __init__(
        self, schema: pa.Schema, type_names: Mapping[str, str], inferred: frozenset[str], partitions: frozenset[str]
    ) -> None:
        """`inferred`: columns whose types must not change a value. `partitions`: columns that may not be in a line."""
        self._schema = schema
        self._type_names = type_names
        self._inferred = inferred
        self._floats = FloatColumns.of(schema, inferred)
        self._decimals = any(pa.types.is_decimal(field.type) for field in schema)
        self._partitions = partitions
        self._unread: tuple[str, ...] | None = None
        """Fields that the source does not have; None until there is one."""
        self._reported = False

    def parse(self, data: bytes) -> pa.RecordBatch:
        _check_objects(data)
        data.decode()  # Arrow does not check UTF-8
        if self._decimals and has_tiny_numbers(data, data.split(b"\n")):
            raise pa.ArrowInvalid("a number has more decimal places than a decimal")
        batch = self._parse_fields(data)
        if self._floats.is_inexact(data, batch):
            raise pa.ArrowInvalid("a number has more digits than a float64")
        return self._with_operation(batch, data)

    def _parse_fields(self, data: bytes) -> pa.RecordBatch:
        """The first fields that the source does not have are noted. Looking for more would take too long."""
        if self._unread is None:
            try:
                return parse_lines(data, self._schema, self._inferred, only_known=True)
            except pa.ArrowInvalid:
                batch = parse_lines(data, self._schema, self._inferred)  # raises if a line is bad
                known = pa.struct(list(self._schema))
                fields = dict.fromkeys(name for line in data.split(b"\n") for name in _unknown(_fields(line), known))
                self._unread = tuple(name for name in fields if name not in self._partitions)
                return batch
        return parse_lines(data, self._schema, self._inferred)

    def unread_fields(self) -> tuple[str, ...]:
        if self._unread is None or self._reported:
            return ()
        self._reported = True
        return self._unread

    def _with_operation(self, batch: pa.RecordBatch, data: bytes) -> pa.RecordBatch:
        """A row without the operation is an insert; a row in which it is null will be rejected."""
        column = batch.column(OPERATION_COLUMN)
        if not column.null_count:
            return batch
        index = batch.schema.get_field_index(OPERATION_COLUMN)
        mark = b'"%s"' % OPERATION_COLUMN.encode()
        if mark not in data:
            return batch.set_column(index, OPERATION_COLUMN, pa.repeat(pa.scalar("i"), batch.num_rows))
        silent = pa.array([not _mentions(line, mark) for line in data.split(b"\n") if line.strip()])
        if len(silent) != batch.num_rows:
            return batch  # the chunk will be parsed line by line
        return batch.set_column(index, OPERATION_COLUMN, pc.if_else(silent, "i", column))

    def complaint(self, record: bytes) -> tuple[str, str]:
        try:
            record.decode()
            _check_objects(record)
        except UnicodeDecodeError as error:
            return "decode_error", f"it is not UTF-8: {error.reason} at byte {error.start}"
        except pa.ArrowInvalid as error:
            return "decode_error", str(error)
        for field in self._schema:
            try:
                parse_lines(record, pa.schema([field]), self._inferred)
                tiny = pa.types.is_decimal(field.type) and has_tiny_numbers(record, [record])
            except pa.ArrowInvalid:
                tiny = True
            if tiny and _is_json(record):
                value = _format_field(record, field.name)
                return (
                    "schema_mismatch",
                    f"column '{field.name}': {value} is not a valid {self._type_names[field.name]}",
                )
        if (inexact := self._floats.find(record)) is not None:
            return "schema_mismatch", inexact_value(*inexact, self._type_names[inexact[0]])
        return "decode_error", "it is not one JSON object; every line must be one"


def _fields(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _unknown(value: Any, type_: pa.DataType, path: str = "") -> Iterator[str]:
    """The paths of fields in a value that its type does not have."""
    if isinstance(value, dict) and pa.types.is_struct(type_):
        for name, inner in value.items():
            index = type_.get_field_index(name)
            if index < 0:
                yield f"{path}{name}"
            else:
                yield from _unknown(inner, type_.field(index).type, f"{path}{name}.")
    elif isinstance(value, list) and pa.types.is_list(type_):
        for item in value:
            yield from _unknown(item, type_.value_type, f"{path.removesuffix('.')}[].")


def _mentions(line: bytes, mark: bytes) -> bool:
    """Whether an object has the operation as a field: the word may also be in a nested object, or be a value."""
    if mark not in line:
        return False
    try:
        return OPERATION_COLUMN in parse(line.decode())
    except ValueError:
        return True


def _format_field(record: bytes, name: str) -> str:
    try:
        return format_value(parse(record.decode()).get(name))
    except ValueError:  # NaN, for instance, which Arrow accepts as JSON
        return "its value"


def _is_json(record: bytes) -> bool:
    try:
        pajson.read_json(pa.py_buffer(record), pajson.ReadOptions(use_threads=False, block_size=len(record) + 1))
    except pa.ArrowInvalid:
        return False
    return True


def _check_objects(data: bytes) -> None:
    """Raises ArrowInvalid unless every line begins with a brace: Arrow accepts other values, or crashes on them."""
    letters = np.frombuffer(data, np.uint8)
    starts = np.concatenate(([0], np.flatnonzero(letters == 10) + 1))
    firsts = letters[starts[starts < len(letters)]]
    if (firsts == ord("{")).all():
        return
    for line in data.split(b"\n"):
        text = line.strip()
        if text and not text.startswith(b"{"):
            array = "; the file must have one object per line, not an array of objects" if text.startswith(b"[") else ""
            raise pa.ArrowInvalid(f"it is not a JSON object: {text[:80].decode(errors='replace')}{array}")
