"""From what a file holds to rows of the source: planned columns and types, partitions, the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from streamling.connector import BadRow
from streamling.errors import SCHEMA_UNUSABLE, PermanentError, UserError
from streamling.formats.arrow import arrow_schema, conform, logical_type, unknown_operations
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sources.file.listing import FoundFile
from streamling.sources.file.stretches import Position

Rows = Iterator["pa.RecordBatch | BadRow | Position"]
Place = Callable[[int], tuple[int, bytes | None]]
"""Number and raw bytes of a row, by its index in a batch."""

# What Spark takes at once; a batch costs more than its rows below some thousands.
BATCH_ROWS = 50_000
# In memory, where a row may be a thousand times longer than in its file. Several batches are under way at a time.
BATCH_BYTES = 8 << 20


class Shape:
    """What the rows of a source look like."""

    def __init__(self, columns: Schema) -> None:
        self.schema: pa.Schema = arrow_schema(columns)
        self.words = {f.name: str(f.type) for f in columns}
        """The types as pipelines call them; Arrow has other words."""
        self._required = [f.name for f in columns if not f.nullable]

    def check_types(self, file: FoundFile, found: pa.Schema) -> None:
        """Raises PermanentError if a column of the file can never become the planned one."""
        for field in self.schema:
            index = found.get_field_index(field.name)
            if index < 0:
                partition = any(name == field.name for name, _ in file.partitions)
                if not field.nullable and field.name != OPERATION_COLUMN and not partition:
                    raise _unfit(file, f"has no column '{field.name}', which may not be null")
                continue
            try:
                empty = pa.RecordBatch.from_arrays([pa.array([], found.field(index).type)], names=[field.name])
                self._column(empty, field)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, PermanentError) as error:
                type_ = _word(found.field(index).type)
                text = f"has a column '{field.name}' of type {type_}, which does not fit {self.words[field.name]}"
                raise _unfit(file, text) from error

    def rows(self, batch: pa.RecordBatch, file: FoundFile, place: Place) -> Rows:
        """The rows of a batch as planned. Columns are taken by name; one that the file lacks is null."""
        bad: dict[int, BadRow] = {}
        columns = []
        for field in self.schema:
            if field.name in batch.schema.names:
                columns.append(self._fitting(batch, field, file, place, bad))
            else:
                columns.append(self._constant(field, file, batch.num_rows))
        shaped = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        self._check(shaped, file, place, bad)
        yield from _around(shaped, bad)

    def _constant(self, field: pa.Field, file: FoundFile, rows: int) -> pa.Array:
        """A column that the file does not have: a partition, the operation, or null."""
        value = "i" if field.name == OPERATION_COLUMN else dict(file.partitions).get(field.name)
        if value is None:
            return pa.nulls(rows, field.type)
        try:
            return pa.repeat(pc.cast(pa.scalar(value), field.type), rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = f"lies in a directory '{field.name}={value}', which does not fit {self.words[field.name]}"
            raise _unfit(file, text) from error

    def _fitting(
        self, batch: pa.RecordBatch, field: pa.Field, file: FoundFile, place: Place, bad: dict[int, BadRow]
    ) -> pa.Array:
        """A column as planned; rows whose value does not fit are bad, and null in it."""
        whole = batch.select([field.name])
        try:
            return self._column(whole, field)
        except (pa.ArrowInvalid, PermanentError):
            fitting: list[pa.Array] = []
            for start, piece in _bisected(whole, lambda b: self._column(b, field)):
                if isinstance(piece, pa.Array):
                    fitting.append(piece)
                    continue
                value = whole.column(0)[start]
                message = f"column '{field.name}': {_told(value)} does not fit {self.words[field.name]}"
                bad.setdefault(start, bad_row("schema_mismatch", message, file, *place(start)))
                fitting.append(pa.nulls(1, field.type))
            return pa.concat_arrays(fitting)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        column = batch.column(0)
        if column.type == field.type:
            return column
        try:
            # Finer times than Spark's are cut to microseconds; nothing else may be lost.
            return pc.cast(column, options=pc.CastOptions(field.type, allow_time_truncate=True))
        except pa.ArrowNotImplementedError:
            return conform(batch, pa.schema([field]), "").column(0)

    def _check(self, batch: pa.RecordBatch, file: FoundFile, place: Place, bad: dict[int, BadRow]) -> None:
        for index, message in unknown_operations(batch).items():
            bad.setdefault(index, bad_row("unknown_operation", message, file, *place(index)))
        for name in self._required:
            column = batch.column(name)
            if name != OPERATION_COLUMN and column.null_count:
                for index in pc.indices_nonzero(column.is_null()).to_pylist():
                    message = f"column '{name}' is null, which the file the columns were taken from does not allow"
                    bad.setdefault(index, bad_row("schema_mismatch", message, file, *place(index)))


def bad_row(reason: str, message: str, file: FoundFile, row: int, raw: bytes | None) -> BadRow:
    return BadRow(
        reason,
        message,
        {"file": file.path, "row": row},
        version=f"{file.size} {file.modified_ns}",
        raw=None if raw is None else _bare(raw),
    )


def _bare(record: bytes) -> bytes:
    return record.removesuffix(b"\n").removesuffix(b"\r")


def _bisected(
    batch: pa.RecordBatch, convert: Callable[[pa.RecordBatch], pa.Array], start: int = 0
) -> Iterator[tuple[int, pa.Array | None]]:
    """Converted pieces with the index they begin at; None for a single row that cannot be converted."""
    try:
        yield start, convert(batch)
        return
    except (pa.ArrowInvalid, PermanentError):
        if batch.num_rows == 1:
            yield start, None
            return
    middle = batch.num_rows // 2
    yield from _bisected(batch.slice(0, middle), convert, start)
    yield from _bisected(batch.slice(middle), convert, start + middle)


def _around(batch: pa.RecordBatch, bad: dict[int, BadRow]) -> Rows:
    """The rows of a batch with the bad ones in their places, in batches that Spark likes."""
    start = 0
    for index in sorted(bad):
        yield from _bounded(batch.slice(start, index - start))
        yield bad[index]
        start = index + 1
    yield from _bounded(batch.slice(start))


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded length and size; a single row may be larger."""
    rows = batch.num_rows
    if rows > BATCH_ROWS or (rows > 1 and batch.nbytes > BATCH_BYTES):
        yield from _bounded(batch.slice(0, rows // 2))
        yield from _bounded(batch.slice(rows // 2))
    elif rows:
        yield batch


def _told(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _word(type_: pa.DataType) -> str:
    try:
        return str(logical_type(type_, ""))
    except UserError:  # we have no word for it
        return str(type_)


def _unfit(file: FoundFile, what: str) -> PermanentError:
    return PermanentError(
        SCHEMA_UNUSABLE,
        f"'{file.path}' {what}; the columns were taken from another file",
        hint="keep files of different columns in directories of their own, with a source each",
    )
