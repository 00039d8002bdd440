"""The columns of files, from as few bytes as possible."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from streamling.errors import SCHEMA_NOT_FOUND, SCHEMA_UNUSABLE, PermanentError, StreamlingError, UserError
from streamling.formats.avro import rows_of
from streamling.formats.json_text import fraction
from streamling.plan.types import BINARY, OPERATION_COLUMN, OPERATION_FIELD, STRING, DataType, Field, Schema
from streamling.sources.file.absence import reason
from streamling.sources.file.avro_container import read_header
from streamling.sources.file.listing import Listing, SourceFile, file_system, list_files
from streamling.spec.mask import mask_text, mask_url

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

    from streamling.sources.file.guesses import OnChange

# In text formats types are inferred from values: those in this many bytes from the start.
_SAMPLE = 1 << 20
# Part of Arrow's message about a column with values of two types.
_MIXED = " changed from "
# A number that may have more digits than a double. Other samples are decoded faster.
_LONG_NUMBER = re.compile(rb"[0-9.]{16}|[0-9][eE]-[0-9]{3}")
_NOTHING_DECLARED: Mapping[str, DataType] = {}


def columns_of(
    path: str,
    format_: str,
    declared: Mapping[str, DataType] = _NOTHING_DECLARED,
    on_change: OnChange = lambda change: None,
) -> Schema:
    """The columns of the files that a path matches, `_gs_op` last; types are the declared ones, else those of the file.

    `on_change` is called for columns whose inferred type would have changed their values.
    Raises UserError if there are no files or their columns cannot be used, PermanentError if they cannot be listed.
    """
    return look_up_columns(path, format_, declared, on_change)[0]


def look_up_columns(
    path: str, format_: str, declared: Mapping[str, DataType], on_change: OnChange
) -> tuple[Schema, bool]:
    """As `columns_of`, and whether the first file has a column with operations.

    Raises UserError if there are no files or their columns cannot be used, PermanentError if they cannot be listed.
    """
    listing = _list(path, format_)
    if not listing.files:
        raise UserError(SCHEMA_NOT_FOUND, f"no files matched '{mask_url(path)}': {reason(path, format_)}")
    system, _ = file_system(path)
    first = next((file for file in listing.files if file.size), listing.files[0])
    try:
        columns = _columns(system, first, format_, declared, on_change)
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
    has_operations = any(f.name == OPERATION_COLUMN for f in columns)
    return _with_operation((*columns, *partitions), first.path), has_operations


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


def _columns(
    system: pafs.FileSystem, file: SourceFile, format_: str, declared: Collection[str], on_change: OnChange
) -> tuple[Field, ...]:
    with system.open_input_file(file.path) as stream:
        match format_:
            case "avro":
                text = read_header(stream).schema
                added = f'"{OPERATION_COLUMN}"' not in text
                return tuple(f for f in rows_of(text).schema if not (added and f == OPERATION_FIELD))
            case "parquet":
                import pyarrow.parquet as pq

                return _fields(pq.read_schema(stream))
            case "csv":
                return _csv_fields(stream, declared, on_change)
            case _:
                return _fields(_json_schema(stream, declared, on_change))


def _fields(schema: pa.Schema) -> tuple[Field, ...]:
    from streamling.formats.arrow import logical_type

    return tuple(Field(f.name, logical_type(f.type, f.name), f.nullable) for f in schema)


def _csv_fields(stream: pa.NativeFile, declared: Collection[str], on_change: OnChange) -> tuple[Field, ...]:
    """Bad rows are skipped here; they are reported when they are read."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    from streamling.sources.file.csv_files import NULL
    from streamling.sources.file.exact_text import is_checked
    from streamling.sources.file.guesses import correct_texts

    sample = _utf8(_csv_sample(stream))
    read = pacsv.ReadOptions(block_size=len(sample) + 1)
    parse = pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    schema = pacsv.read_csv(pa.py_buffer(sample), read, parse, NULL).schema
    uncertain = [f for f in schema if f.name not in declared and (is_checked(f.type) or pa.types.is_timestamp(f.type))]
    if uncertain and len(set(schema.names)) == len(schema):
        as_text = pacsv.ConvertOptions(
            column_types={f.name: pa.string() for f in uncertain},
            include_columns=[f.name for f in uncertain],
            null_values=NULL.null_values,
            strings_can_be_null=NULL.strings_can_be_null,
            quoted_strings_can_be_null=NULL.quoted_strings_can_be_null,
        )
        texts = pacsv.read_csv(pa.py_buffer(sample), read, parse, as_text).combine_chunks()
        for field in uncertain:
            (column,) = texts.column(field.name).chunks
            type_ = correct_texts(field.name, field.type, column, on_change)
            schema = schema.set(schema.get_field_index(field.name), field.with_type(type_))
    # Arrow infers bytes for values that are not UTF-8; in a text file such a value is a bad value of a text column.
    return tuple(Field(f.name, STRING if f.type == BINARY else f.type, f.nullable) for f in _fields(schema))


def _csv_sample(stream: pa.NativeFile) -> bytes:
    """Whole records from the start of a file."""
    from streamling.sources.file.records import CsvEnds

    sample: bytes = stream.read(_SAMPLE)
    if len(sample) < _SAMPLE:
        return sample
    ends = CsvEnds().feed(sample)
    return sample[: int(ends[-1])] if len(ends) > 1 else sample + stream.read()


def _utf8(sample: bytes) -> bytes:
    """The sample with replacement characters for what is not UTF-8.

    Arrow decodes the rows that it passes to the handler of invalid rows, and prints a traceback if it cannot.
    """
    try:
        sample.decode()
    except UnicodeDecodeError:
        return sample.decode(errors="replace").encode()
    return sample


def _json_schema(stream: pa.NativeFile, declared: Collection[str], on_change: OnChange) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.json as pajson

    from streamling.sources.file.guesses import correct_values
    from streamling.sources.file.records import BOM

    sample = stream.read(_SAMPLE)
    if len(sample) == _SAMPLE:
        whole, line_end, _ = sample.rpartition(b"\n")
        sample = whole if line_end else sample + stream.read()
    lines = [line for line in sample.removeprefix(BOM).splitlines() if line.strip()]
    if not lines:
        return pa.schema([])
    decoder = json.JSONDecoder(parse_float=fraction) if _LONG_NUMBER.search(sample) else json.JSONDecoder()
    objects = [(line, fields) for line in lines if (fields := _object(line, decoder)) is not None]
    if not objects:
        array = (
            "; it must have one object per line, not an array of objects" if lines[0].lstrip().startswith(b"[") else ""
        )
        raise ValueError(f"none of its lines is a JSON object{array}")
    text = b"\n".join(_undeclared(line, fields, declared) for line, fields in objects)
    schema = pajson.read_json(pa.py_buffer(text), pajson.ReadOptions(block_size=len(text) + 1)).schema
    columns = [
        field.with_type(correct_values(field.name, field.type, [f.get(field.name) for _, f in objects], on_change))
        for field in schema
    ]
    return pa.schema(columns)


def _object(line: bytes, decoder: json.JSONDecoder) -> dict[str, Any] | None:
    """None for a line that is not an object; it is reported when it is read."""
    try:
        fields = decoder.decode(line.decode().strip())
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _undeclared(line: bytes, fields: Mapping[str, Any], declared: Collection[str]) -> bytes:
    """The fields of a line that are not declared."""
    if not declared:
        return line
    rest = {name: value for name, value in fields.items() if name not in declared}
    return json.dumps(rest, default=_float).encode()


def _float(value: object) -> float:
    """For Arrow's inference a Decimal need not have all its digits."""
    return float(str(value))
