"""The columns of files, from as little of them as tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from streamling.errors import SCHEMA_NOT_FOUND, SCHEMA_UNUSABLE, StreamlingError, UserError
from streamling.formats.avro import rows_of
from streamling.plan.types import BINARY, OPERATION_COLUMN, OPERATION_FIELD, STRING, Field, Schema
from streamling.sources.file.avro_container import read_header
from streamling.sources.file.listing import EXTENSIONS, FoundFile, file_system, is_file, list_files

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

# Text formats say their types by their values: those of the first block.
_SAMPLE = 1 << 20


def columns_of(path: str, format_: str) -> Schema:
    """The columns of the files a path means, `_gs_op` last. Raises UserError if there are none or they differ."""
    listing = list_files(path, format_)
    if not listing.files:
        why = f"at least one {format_} file must be there, its columns are taken from it"
        if is_file(path):
            why = f"the file is there, but its name does not end in {' or '.join(EXTENSIONS[format_])}"
            if path.lower().endswith(EXTENSIONS[format_]):
                why = "the file is there, but names that begin with '.' or '_' are left out"
        raise UserError(SCHEMA_NOT_FOUND, f"no files matched '{path}': {why}")
    system, _ = file_system(path)
    first = next((file for file in listing.files if file.size), listing.files[0])
    try:
        found = _columns(system, first, format_)
    except StreamlingError:
        raise
    except (OSError, ValueError) as error:
        text = f"'{first.path}' cannot be read as {format_}: {str(error).splitlines()[0]}"
        raise UserError(SCHEMA_UNUSABLE, text, cause=error) from error
    names = {f.name for f in found}
    if len(names) < len(found):
        twice = next(f.name for n, f in enumerate(found) if any(f.name == other.name for other in found[:n]))
        raise UserError(SCHEMA_UNUSABLE, f"'{first.path}' has two columns of the name '{twice}'")
    partitions = [Field(name, STRING, nullable=False) for name, _ in first.partitions if name not in names]
    return _with_operation((*found, *partitions), first.path)


def _with_operation(fields: tuple[Field, ...], path: str) -> Schema:
    own = next((f for f in fields if f.name == OPERATION_COLUMN), None)
    if own is not None and own.type != STRING:
        message = f"the column {OPERATION_COLUMN} of '{path}' must be text, it is {own.type}"
        raise UserError(SCHEMA_UNUSABLE, message)
    return Schema((*(f for f in fields if f.name != OPERATION_COLUMN), OPERATION_FIELD))


def _columns(system: pafs.FileSystem, file: FoundFile, format_: str) -> tuple[Field, ...]:
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
                return _fields(_json_schema(stream))


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


def _json_schema(stream: pa.NativeFile) -> pa.Schema:
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
    objects = b"\n".join(line for line in lines if _is_object(line))
    if not objects:
        raise ValueError("no line of it is a JSON object")
    return pajson.read_json(pa.py_buffer(objects), pajson.ReadOptions(block_size=len(objects) + 1)).schema


def _is_object(line: bytes) -> bool:
    """A line that is none says nothing of the columns; it is told when its turn comes."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
