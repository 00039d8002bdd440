"""CSV: a header line, commas, quotes around a value that contains a comma or a line end.

An empty field is null, `""` is empty text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from streamling.errors import SCHEMA_UNUSABLE, PermanentError
from streamling.sources.file.exact_text import cast_texts, is_checked, needs_digits
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.number_scan import has_odd_beginnings, long_numbers, small_exponents
from streamling.sources.file.parts import FilePart
from streamling.sources.file.records import BOM, CsvEnds, RecordCutter
from streamling.sources.file.rows import Rows, RowShape
from streamling.sources.file.text_rows import inexact_value, text_rows

NULL = pacsv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
_HEADER_CHUNK = 64 << 10
# Arrow counts rows from the beginning of its input; the number of the row in the file is reported with the message.
# Types for which the bytes of a chunk show that no value has changed.
_SCANNED = (pa.int64(), pa.float64())
_ARROW_ROW = re.compile(r"^CSV parse error: (Row #\d+: )?")


@dataclass(frozen=True, slots=True)
class Header:
    """The names in the first record of a file, and where the rows begin."""

    names: tuple[str, ...]
    end: int


def open_cutter(
    file: SourceFile, stream: Any, at: int, row: int, shape: RowShape
) -> tuple[RecordCutter, tuple[str, ...]]:
    """The cutter of a file, and the columns it has."""
    header = _header(file, stream, shape)
    return RecordCutter(file, stream, CsvEnds(), max(at, header.end), row), header.names


def rows(stream: Any, part: FilePart, shape: RowShape) -> Rows:
    names = _header(part.file, stream, shape).names
    types = {f.name: f.type for f in shape.schema if f.name in names}
    exact = {name: type_ for name, type_ in types.items() if name in shape.inferred and is_checked(type_)}
    yield from text_rows(stream, part, CsvEnds(), _CsvParser(names, types, exact, shape.type_names), shape)


def read_heading(file: SourceFile, stream: Any, shape: RowShape) -> bytes:
    """The bytes of a file up to its first row."""
    end = _header(file, stream, shape).end
    stream.seek(0)
    heading: bytes = stream.read(end)
    return heading


def _header(file: SourceFile, stream: Any, shape: RowShape) -> Header:
    stream.seek(0)
    cutter = RecordCutter(file, stream, CsvEnds(), len(BOM) if stream.read(len(BOM)) == BOM else 0)
    record = b""
    while not record.strip(b"\r\n"):
        line = cutter.cut(1, _HEADER_CHUNK)
        if line is None:
            return Header((), file.size)
        stream.seek(line.first)
        record = stream.read(line.end - line.first)
        stream.seek(cutter.at)
    return Header(_names(file, record, shape), cutter.at)


def _names(file: SourceFile, record: bytes, shape: RowShape) -> tuple[str, ...]:
    try:
        (names,) = csv.reader([record.decode()])
    except (csv.Error, ValueError) as error:
        text = f"the header of '{file.path}' cannot be read: {error}"
        raise PermanentError(SCHEMA_UNUSABLE, text, hint="lines must end with LF or CRLF") from error
    twice = next((name for name in names if names.count(name) > 1 and name in shape.schema.names), None)
    if twice is not None:
        raise PermanentError(SCHEMA_UNUSABLE, f"'{file.path}' has two columns with the name '{twice}'")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class _CsvParser:
    names: tuple[str, ...]
    types: dict[str, pa.DataType]
    exact: Mapping[str, pa.DataType]
    """Columns whose inferred type must not change a value. They are read as text and cast if that may happen."""
    type_names: Mapping[str, str]

    def parse(self, data: bytes) -> pa.RecordBatch:
        scanned = {name: type_ for name, type_ in self.exact.items() if type_ in _SCANNED}
        texts = {name: type_ for name, type_ in self.exact.items() if type_ not in _SCANNED}
        batch = self._parse(data, {**self.types, **dict.fromkeys(texts, pa.string())})
        if scanned and _may_change(data, [batch.column(name) for name in scanned]):
            texts = dict(self.exact)
            batch = self._parse(data, {**self.types, **dict.fromkeys(texts, pa.string())})
        for name, type_ in texts.items():
            values, inexact = cast_texts(batch.column(name), type_, strict=False)
            if inexact.any():
                raise pa.ArrowInvalid(f"column '{name}' is not exactly {type_}")
            batch = batch.set_column(batch.schema.get_field_index(name), name, values)
        return batch

    def _parse(self, data: bytes, types: dict[str, pa.DataType]) -> pa.RecordBatch:
        table = pacsv.read_csv(
            pa.py_buffer(data),
            pacsv.ReadOptions(column_names=self.names, block_size=len(data) + 1, use_threads=False),
            pacsv.ParseOptions(newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=NULL.null_values,
                strings_can_be_null=NULL.strings_can_be_null,
                quoted_strings_can_be_null=NULL.quoted_strings_can_be_null,
            ),
        )
        return table.combine_chunks().to_batches()[0] if table.num_rows else _no_rows(types)

    def complaint(self, record: bytes) -> tuple[str, str]:
        try:
            raw = self._parse(record, dict.fromkeys(self.types, pa.binary()))
        except pa.ArrowInvalid as error:
            return "decode_error", _ARROW_ROW.sub("", str(error))
        if raw.num_rows != 1:
            return "decode_error", "it contains a lone CR: lines must end with LF or CRLF"
        for name, type_ in self.types.items():
            try:
                self._parse(record, {name: type_})
            except pa.ArrowInvalid:
                value: bytes = raw.column(name)[0].as_py() or b""
                if type_ == pa.string():
                    return "decode_error", f"column '{name}' is not UTF-8: {value[:80]!r}"
                text = value[:80].decode(errors="replace")
                return "schema_mismatch", f"column '{name}': {text!r} is not a valid {self.type_names[name]}"
        texts = self._parse(record, dict.fromkeys(self.exact, pa.string()))
        for name, type_ in self.exact.items():
            if cast_texts(texts.column(name), type_, strict=False)[1].any():
                return "schema_mismatch", inexact_value(
                    name, repr(texts.column(name)[0].as_py()), self.type_names[name]
                )
        return "decode_error", "it cannot be read as CSV"

    def unread_fields(self) -> tuple[str, ...]:
        return ()  # the header has all of them


def _may_change(data: bytes, columns: Sequence[pa.Array]) -> bool:
    """Whether there may be a text that is not exactly the integer or float it was read as."""
    letters = np.frombuffer(data, np.uint8)
    if has_odd_beginnings(letters):
        return True
    floats = [column for column in columns if pa.types.is_float64(column.type)]
    if not floats:
        return False
    return any(map(needs_digits, floats)) or len(long_numbers(letters)) > 0 or len(small_exponents(letters)) > 0


def _no_rows(types: dict[str, pa.DataType]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], t) for t in types.values()], names=list(types))
