"""Casts the rows of a file to the planned columns; adds partitions and the operation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from streamling.connector import BadRow, Counted
from streamling.errors import SCHEMA_UNUSABLE, PermanentError, UserError
from streamling.formats.arrow import arrow_schema, cast_batch, logical_type, unknown_operations
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.parts import Position

Rows = Iterator["pa.RecordBatch | BadRow | Counted | Position"]
Place = Callable[[int], tuple[int, bytes | None]]
"""Number and raw bytes of a row, by its index in a batch."""

# What Spark takes at once; below some thousand rows a batch costs more than its rows.
BATCH_ROWS = 50_000
# In memory, where a row may be a thousand times longer than in its file. Several batches are in memory at a time.
BATCH_BYTES = 8 << 20


class RowShape:
    """The planned columns of a source, and the cast of batches to them."""

    def __init__(self, columns: Schema, declared: Collection[str] = ()) -> None:
        """`declared` are the columns whose types were not inferred; it matters in text formats only."""
        self.schema: pa.Schema = arrow_schema(columns)
        self.inferred = frozenset(columns.names) - {OPERATION_COLUMN} - frozenset(declared)
        self.type_names = {f.name: str(f.type) for f in columns}
        """The types as pipelines name them; Arrow has other names."""
        self._required = [f.name for f in columns if not f.nullable]

    def check_types(self, file: SourceFile, schema: pa.Schema) -> None:
        """Raises PermanentError if a column of the file can never be cast to the planned type."""
        for field in self.schema:
            index = schema.get_field_index(field.name)
            if index < 0:
                partition = any(name == field.name for name, _ in file.partitions)
                if not field.nullable and field.name != OPERATION_COLUMN and not partition:
                    raise _unfit_file(file, f"has no column '{field.name}', which may not be null")
                continue
            try:
                empty = pa.RecordBatch.from_arrays([pa.array([], schema.field(index).type)], names=[field.name])
                self._column(empty, field)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, PermanentError) as error:
                type_ = _type_name(schema.field(index).type)
                text = f"has a column '{field.name}' of type {type_}, which does not fit {self.type_names[field.name]}"
                raise _unfit_file(file, text) from error

    def rows(self, batch: pa.RecordBatch, file: SourceFile, place: Place) -> Rows:
        """The rows of a batch as planned. Columns are matched by name; a column that the file lacks is null."""
        bad: dict[int, BadRow] = {}
        columns = []
        for field in self.schema:
            if field.name in batch.schema.names:
                columns.append(self._cast_column(batch, field, file, place, bad))
            else:
                columns.append(self._constant(field, file, batch.num_rows))
        shaped = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        self._check(shaped, file, place, bad)
        yield from _insert_bad(shaped, bad)

    def _constant(self, field: pa.Field, file: SourceFile, rows: int) -> pa.Array:
        """A column that the file does not have: a partition, the operation, or null."""
        value = "i" if field.name == OPERATION_COLUMN else dict(file.partitions).get(field.name)
        if value is None:
            return pa.nulls(rows, field.type)
        try:
            return pa.repeat(pc.cast(pa.scalar(value), field.type), rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = f"is in a directory '{field.name}={value}', which does not fit {self.type_names[field.name]}"
            raise _unfit_file(file, text) from error

    def _cast_column(
        self, batch: pa.RecordBatch, field: pa.Field, file: SourceFile, place: Place, bad: dict[int, BadRow]
    ) -> pa.Array:
        """A column as planned; a row whose value does not fit is bad, and null in the column."""
        whole = batch.select([field.name])
        try:
            return self._column(whole, field)
        except (pa.ArrowInvalid, PermanentError):
            arrays: list[pa.Array] = []
            for start, array in _cast_halves(whole, lambda b: self._column(b, field)):
                if isinstance(array, pa.Array):
                    arrays.append(array)
                    continue
                value = whole.column(0)[start]
                message = f"column '{field.name}': {_format_value(value)} does not fit {self.type_names[field.name]}"
                bad.setdefault(start, bad_row("schema_mismatch", message, file, *place(start)))
                arrays.append(pa.nulls(1, field.type))
            return pa.concat_arrays(arrays)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        column = batch.column(0)
        if column.type == field.type:
            return column
        try:
            # Times finer than Spark's are truncated to microseconds; nothing else may be lost.
            return pc.cast(column, options=pc.CastOptions(field.type, allow_time_truncate=True))
        except pa.ArrowNotImplementedError:
            return cast_batch(batch, pa.schema([field]), "").column(0)

    def _check(self, batch: pa.RecordBatch, file: SourceFile, place: Place, bad: dict[int, BadRow]) -> None:
        for index, message in unknown_operations(batch).items():
            bad.setdefault(index, bad_row("unknown_operation", message, file, *place(index)))
        for name in self._required:
            column = batch.column(name)
            if name != OPERATION_COLUMN and column.null_count:
                for index in pc.indices_nonzero(column.is_null()).to_pylist():
                    message = f"column '{name}' is null, which the file that defines the columns does not allow"
                    bad.setdefault(index, bad_row("schema_mismatch", message, file, *place(index)))


def bad_row(reason: str, message: str, file: SourceFile, row: int, raw: bytes | None) -> BadRow:
    return BadRow(
        reason,
        message,
        {"file": file.path, "row": row},
        version=f"{file.size} {file.modified_ns}",
        raw=None if raw is None else _without_line_end(raw),
    )


def _without_line_end(record: bytes) -> bytes:
    return record.removesuffix(b"\n").removesuffix(b"\r")


def _cast_halves(
    batch: pa.RecordBatch, cast: Callable[[pa.RecordBatch], pa.Array], start: int = 0
) -> Iterator[tuple[int, pa.Array | None]]:
    """Arrays with the index of their first row, found by halving; None for a single row that cannot be cast."""
    try:
        yield start, cast(batch)
        return
    except (pa.ArrowInvalid, PermanentError):
        if batch.num_rows == 1:
            yield start, None
            return
    middle = batch.num_rows // 2
    yield from _cast_halves(batch.slice(0, middle), cast, start)
    yield from _cast_halves(batch.slice(middle), cast, start + middle)


def _insert_bad(batch: pa.RecordBatch, bad: dict[int, BadRow]) -> Rows:
    """The rows of a batch with the bad ones in their places, in batches of bounded size."""
    start = 0
    for index in sorted(bad):
        yield from _cut(batch.slice(start, index - start))
        yield bad[index]
        start = index + 1
    yield from _cut(batch.slice(start))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded length and size; a single row may be larger."""
    rows = batch.num_rows
    if rows > BATCH_ROWS or (rows > 1 and batch.nbytes > BATCH_BYTES):
        yield from _cut(batch.slice(0, rows // 2))
        yield from _cut(batch.slice(rows // 2))
    elif rows:
        yield batch


def _format_value(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _type_name(type_: pa.DataType) -> str:
    try:
        return str(logical_type(type_, ""))
    except UserError:  # pipelines have no such type
        return str(type_)


def _unfit_file(file: SourceFile, what: str) -> PermanentError:
    return PermanentError(
        SCHEMA_UNUSABLE,
        f"'{file.path}' {what}; the columns of the source come from another file",
        hint="put files with different columns into different directories, and use one source for each",
    )
