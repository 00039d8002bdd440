"""The columns of files, from as few bytes as possible."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from streamling.errors import SCHEMA_NOT_FOUND, SCHEMA_UNUSABLE, PermanentError, StreamlingError, UserError
from streamling.formats.avro import rows_of
from streamling.plan.types import BINARY, OPERATION_COLUMN, OPERATION_FIELD, STRING, DataType, Field, Schema
from streamling.sources.file.absence import reason
from streamling.sources.file.avro_container import read_header
from streamling.sources.file.listing import Listing, SourceFile, file_system, list_files
from streamling.spec.mask import mask_text, mask_url

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

# In text formats types are inferred from values: those in this many bytes from the start.
_SAMPLE = 1 << 20
# Part of Arrow's message about a column with values of two types.
_MIXED = " changed from "
_NOTHING_DECLARED: Mapping[str, DataType] = {}


def columns_of(path: str, format_: str, declared: Mapping[str, DataType] = _NOTHING_DECLARED) -> Schema:
    """The columns of the files that a path matches, `_gs_op` last; types are the declared ones, else those of the file.

    Raises UserError if there are no files or their columns cannot be used, PermanentError if they cannot be listed.
    """
    listing = _list(path, format_)
    if not listing.files:
        raise UserError(SCHEMA_NOT_FOUND, f"no files matched '{mask_url(path)}': {reason(path, format_)}")
    system, _ = file_system(path)
    first = next((file for file in listing.files if file.size), listing.files[0])
    try:
        columns = _columns(system, first, format_, declared)
    except StreamlingError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(first, format_, error) from error
    columns = _with_declared(columns, declared, first, format_)
    names = {f.name for f in columns}
    if len(names) < len(columns):
        twice = next(f.name for n, f in enumerate(columns) if any(f.name == other.name for other in columns[:n]))
        raise UserError(SCHEMA_UNUSABLE, f"'{first.path}' has two columns with the name '{twice}'")
    partitions = [Field(name, STRING, nullable=False) for name, _ in first.partitions if name not in names]
    return _with_operation((*columns, *partitions), first.path)


def _list(path: str, format_: str) -> Listing:
    try:
        return list_files(path, format_)
    except (OSError, ValueError) as error:
        message = f"'{mask_url(path)}' cannot be listed: {mask_text(str(error))}"
        raise PermanentError(SCHEMA_NOT_FOUND, message, cause=error) from error


def _unreadable(file: SourceFile, format_: str, error: Exception) -> UserError:
    if isinstance(error, OSError) and error.errno:
        text = f"'{file.path}' cannot be read: {os.strerror(error.errno)}"
        return UserError(SCHEMA_NOT_FOUND, text, cause=error)
    if format_ == "csv" and not file.size:
        text = f"'{file.path}' is empty, like all other files; a csv file must begin with a line of column names"
        return UserError(SCHEMA_UNUSABLE, text)
    text = f"'{file.path}' cannot be read as {format_}: {str(error).splitlines()[0]}"
    hint = "set the type of the column in 'schema' of the source" if _MIXED in text else None
    return UserError(SCHEMA_UNUSABLE, text, cause=error, hint=hint)


def _with_declared(
    columns: tuple[Field, ...], declared: Mapping[str, DataType], file: SourceFile, format_: str
) -> tuple[Field, ...]:
    """The columns with their declared types. A declared column that the first file lacks is null until a file has it.

    In a csv file the header defines the order of the columns. The lines of a json file may each have another order, so
    the declared columns come first, in the order of their declaration.
    """
    directory = next((name for name, _ in file.partitions if name in declared), None)
    if directory is not None:
        text = f"'schema' declares '{directory}', which comes from directory names: it is always text; cast it in SQL"
        raise UserError(SCHEMA_UNUSABLE, text)
    typed = tuple(Field(f.name, declared.get(f.name, f.type), f.nullable) for f in columns)
    known = {f.name for f in columns}
    if format_ != "csv":
        return (
            *(Field(name, type_) for name, type_ in declared.items()),
            *(f for f in typed if f.name not in declared),
        )
    return (*typed, *(Field(name, type_) for name, type_ in declared.items() if name not in known))


def _with_operation(fields: tuple[Field, ...], path: str) -> Schema:
    operation = next((f for f in fields if f.name == OPERATION_COLUMN), None)
    if operation is not None and operation.type != STRING:
        message = f"the column {OPERATION_COLUMN} of '{path}' must be text, it is {operation.type}"
        raise UserError(SCHEMA_UNUSABLE, message)
    return Schema((*(f for f in fields if f.name != OPERATION_COLUMN), OPERATION_FIELD))


def _columns(system: pafs.FileSystem, file: SourceFile, format_: str, declared: Collection[str]) -> tuple[Field, ...]:
    with system.open_input_file(file.path) as stream:
        match format_:
            case "avro":
                schema = rows_of(read_header(stream).schema).schema
                return tuple(f for f in schema if f != OPERATION_FIELD)
            case "parquet":
                import pyarrow.parquet as pq

                return _fields(pq.read_schema(stream))
            case "csv":
                return _csv_fields(stream)
            case _:
                return _fields(_json_schema(stream, declared))


def _fields(schema: pa.Schema) -> tuple[Field, ...]:
    from streamling.formats.arrow import logical_type

    return tuple(Field(f.name, logical_type(f.type, f.name), f.nullable) for f in schema)


def _csv_fields(stream: pa.NativeFile) -> tuple[Field, ...]:
    """Bad rows are skipped here; they are reported when they are read."""
    import pyarrow.csv as pacsv

    from streamling.sources.file.csv_files import NULL

    read = pacsv.ReadOptions(block_size=_SAMPLE)
    parse = pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    fields = _fields(pacsv.open_csv(_utf8(stream), read, parse, NULL).schema)
    # Arrow infers bytes for values that are not UTF-8; in a text file such a value is a bad value of a text column.
    return tuple(Field(f.name, STRING if f.type == BINARY else f.type, f.nullable) for f in fields)


def _utf8(stream: pa.NativeFile) -> pa.NativeFile:
    """The file, or a sample of it in which characters replace what is not UTF-8.

    Arrow decodes the rows that it passes to the handler of invalid rows, and prints a traceback if it cannot.
    """
    import pyarrow as pa

    sample = stream.read(_SAMPLE)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < _SAMPLE)
    except UnicodeDecodeError:
        whole = sample if len(sample) < _SAMPLE else sample[: sample.rfind(b"\n") + 1] or sample
        return pa.BufferReader(whole.decode(errors="replace").encode())
    if len(sample) < _SAMPLE:
        return pa.BufferReader(sample)
    stream.seek(0)
    return stream


def _json_schema(stream: pa.NativeFile, declared: Collection[str]) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.json as pajson

    from streamling.sources.file.records import BOM

    sample = stream.read(_SAMPLE)
    if len(sample) == _SAMPLE:
        whole, line_end, _ = sample.rpartition(b"\n")
        sample = whole if line_end else sample + stream.read()
    lines = [line for line in sample.removeprefix(BOM).splitlines() if line.strip()]
    if not lines:
        return pa.schema([])
    objects = b"\n".join(text for line in lines if (text := _undeclared(line, declared)))
    if not objects:
        array = (
            "; it must have one object per line, not an array of objects" if lines[0].lstrip().startswith(b"[") else ""
        )
        raise ValueError(f"none of its lines is a JSON object{array}")
    return pajson.read_json(pa.py_buffer(objects), pajson.ReadOptions(block_size=len(objects) + 1)).schema


def _undeclared(line: bytes, declared: Collection[str]) -> bytes:
    """The fields of a line that are not declared.

    Empty for a line that is not an object; it is reported when it is read.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return b""
    if not isinstance(fields, dict):
        return b""
    if not declared:
        return line
    return json.dumps({name: value for name, value in fields.items() if name not in declared}).encode()
