"""The columns of files, from as little of them as tells."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from streamling.errors import SCHEMA_NOT_FOUND, SCHEMA_UNUSABLE, StreamlingError, UserError
from streamling.formats.avro import rows_of
from streamling.plan.types import BINARY, OPERATION_COLUMN, OPERATION_FIELD, STRING, DataType, Field, Schema
from streamling.sources.file.absence import reason
from streamling.sources.file.avro_container import read_header
from streamling.sources.file.listing import FoundFile, file_system, list_files
from streamling.spec.secret import mask_url

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

# Text formats say their types by their values: those of the first block.
_SAMPLE = 1 << 20
# What Arrow says of a column whose values are of two types.
_MIXED = " changed from "
_NOTHING_DECLARED: Mapping[str, DataType] = {}


def columns_of(path: str, format_: str, declared: Mapping[str, DataType] = _NOTHING_DECLARED) -> Schema:
    """The columns of the files a path means, `_gs_op` last; types are the declared ones, else those of the file.

    Raises UserError if there are no files or their columns cannot be used.
    """
    listing = list_files(path, format_)
    if not listing.files:
        raise UserError(SCHEMA_NOT_FOUND, f"no files matched '{mask_url(path)}': {reason(path, format_)}")
    system, _ = file_system(path)
    first = next((file for file in listing.files if file.size), listing.files[0])
    try:
        found = _columns(system, first, format_, declared)
    except StreamlingError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(first, format_, error) from error
    found = _with_declared(found, declared, first, format_)
    names = {f.name for f in found}
    if len(names) < len(found):
        twice = next(f.name for n, f in enumerate(found) if any(f.name == other.name for other in found[:n]))
        raise UserError(SCHEMA_UNUSABLE, f"'{first.path}' has two columns of the name '{twice}'")
    partitions = [Field(name, STRING, nullable=False) for name, _ in first.partitions if name not in names]
    return _with_operation((*found, *partitions), first.path)


def _unreadable(file: FoundFile, format_: str, error: Exception) -> UserError:
    if isinstance(error, OSError) and error.errno:
        text = f"'{file.path}' cannot be read: {os.strerror(error.errno)}"
        return UserError(SCHEMA_NOT_FOUND, text, cause=error)
    if format_ == "csv" and not file.size:
        text = f"'{file.path}' is empty, as all files are: a csv file begins with a line of column names"
        return UserError(SCHEMA_UNUSABLE, text)
    text = f"'{file.path}' cannot be read as {format_}: {str(error).splitlines()[0]}"
    hint = "'schema' of the source can say the types of columns" if _MIXED in text else None
    return UserError(SCHEMA_UNUSABLE, text, cause=error, hint=hint)


def _with_declared(
    found: tuple[Field, ...], declared: Mapping[str, DataType], file: FoundFile, format_: str
) -> tuple[Field, ...]:
    """A declared column that the first file does not have may come with later ones; until then it is null.

    The header of a csv file orders its columns; the lines of a json file may each have another order, so there those
    that are declared come first, as they are declared.
    """
    directory = next((name for name, _ in file.partitions if name in declared), None)
    if directory is not None:
        text = f"'schema' declares '{directory}', which is a column of directories: those are text, cast it in SQL"
        raise UserError(SCHEMA_UNUSABLE, text)
    typed = tuple(Field(f.name, declared.get(f.name, f.type), f.nullable) for f in found)
    known = {f.name for f in found}
    if format_ != "csv":
        return (
            *(Field(name, type_) for name, type_ in declared.items()),
            *(f for f in typed if f.name not in declared),
        )
    return (*typed, *(Field(name, type_) for name, type_ in declared.items() if name not in known))


def _with_operation(fields: tuple[Field, ...], path: str) -> Schema:
    own = next((f for f in fields if f.name == OPERATION_COLUMN), None)
    if own is not None and own.type != STRING:
        message = f"the column {OPERATION_COLUMN} of '{path}' must be text, it is {own.type}"
        raise UserError(SCHEMA_UNUSABLE, message)
    return Schema((*(f for f in fields if f.name != OPERATION_COLUMN), OPERATION_FIELD))


def _columns(system: pafs.FileSystem, file: FoundFile, format_: str, declared: Collection[str]) -> tuple[Field, ...]:
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
    """Rows that cannot be read say nothing of the columns; they are told when their turn comes."""
    import pyarrow.csv as pacsv

    from streamling.sources.file.csv_files import NULL

    read = pacsv.ReadOptions(block_size=_SAMPLE)
    parse = pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    found = _fields(pacsv.open_csv(stream, read, parse, NULL).schema)
    # What is not UTF-8 makes a column of bytes for Arrow; in a text file it is a mistake.
    return tuple(Field(f.name, STRING if f.type == BINARY else f.type, f.nullable) for f in found)


def _json_schema(stream: pa.NativeFile, declared: Collection[str]) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.json as pajson

    from streamling.sources.file.records import BOM

    sample = stream.read(_SAMPLE)
    if len(sample) == _SAMPLE:
        whole, found, _ = sample.rpartition(b"\n")
        sample = whole if found else sample + stream.read()
    lines = [line for line in sample.removeprefix(BOM).splitlines() if line.strip()]
    if not lines:
        return pa.schema([])
    objects = b"\n".join(text for line in lines if (text := _undeclared(line, declared)))
    if not objects:
        array = "; one object per line is needed, not an array of them" if lines[0].lstrip().startswith(b"[") else ""
        raise ValueError(f"no line of it is a JSON object{array}")
    return pajson.read_json(pa.py_buffer(objects), pajson.ReadOptions(block_size=len(objects) + 1)).schema


def _undeclared(line: bytes, declared: Collection[str]) -> bytes:
    """What a line says of columns that nobody has declared.

    A line that is no object says nothing, and is told when its turn comes.
    """
    try:
        found = json.loads(line)
    except ValueError:
        return b""
    if not isinstance(found, dict):
        return b""
    if not declared:
        return line
    return json.dumps({name: value for name, value in found.items() if name not in declared}).encode()
