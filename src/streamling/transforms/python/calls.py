"""Calls of the function of a node: row by row or batch by batch, and what becomes of the results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any

import pyarrow as pa

from streamling.connector import BadRow
from streamling.errors import DATA_ERROR, PermanentError
from streamling.formats.arrow import arrow_schema, cast_array, unknown_operations
from streamling.formats.exchange import to_plugin
from streamling.formats.json import json_objects
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.transforms.python.columns import Casting, builder
from streamling.transforms.python.loading import LoadedProgram
from streamling.transforms.python.values import RowMaker

# Dicts take some hundred bytes per row. Few at a time stay in the caches of the processor, and die before Python's
# collector has looked at them often.
_CHUNK_ROWS = 2048
_FAILED = "python_error"
_UNFIT = "cast_error"
# Names that are no columns: enough of them for a warning. A function may return other ones for every row.
_MOST_NEW_KEYS = 20


class WrongResult(Exception):
    """A function returned what is not rows."""


@dataclass(slots=True)
class Outcome:
    """What came of some rows."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    new_keys: set[str] = field(default_factory=set)
    """Names that were returned and are no columns; not all, if there are many."""
    nulled: int = 0
    """Values that became null because their column cannot hold them."""

    def add_keys(self, keys: Iterable[object]) -> None:
        if len(self.new_keys) < _MOST_NEW_KEYS:
            self.new_keys.update(islice(map(str, keys), _MOST_NEW_KEYS))


class RowCalls:
    """A function that gets a dict and returns one, a list of them, or None."""

    def __init__(self, program: LoadedProgram, input_schema: Schema, schema: Schema) -> None:
        self._program = program
        self._make = RowMaker(input_schema)
        self._schema = arrow_schema(schema)
        self._columns = [column for column in schema if column.name != OPERATION_COLUMN]
        self._builders = [builder(column.type) for column in self._columns]
        self._names = tuple(column.name for column in self._columns)
        self._known = {*self._names, OPERATION_COLUMN}

    def run(self, batch: pa.RecordBatch) -> Iterator[Outcome]:
        for start in range(0, batch.num_rows, _CHUNK_ROWS):
            yield self._run_chunk(batch.slice(start, _CHUNK_ROWS))

    def _run_chunk(self, batch: pa.RecordBatch) -> Outcome:
        outcome = Outcome()
        rows, unfit = self._make.rows(batch)
        bad = {index: (_UNFIT, message) for index, message in unfit.items()}
        records, origins = self._call(rows, bad, outcome)
        arrays, faults = self._build(records, outcome)
        if faults:
            for index, message in faults.items():
                bad.setdefault(origins[index], (_UNFIT, message))
            kept = [n for n, origin in enumerate(origins) if origin not in bad]
            records, origins = [records[n] for n in kept], [origins[n] for n in kept]
            outcome.nulled = 0
            arrays, _ = self._build(records, outcome)
        outcome.bad = list(_bad_rows(batch, bad))
        if records:
            outcome.batches = [self._assemble(arrays, batch, origins)]
        return outcome

    def _call(
        self, rows: Sequence[dict[str, Any]], bad: dict[int, tuple[str, str]], outcome: Outcome
    ) -> tuple[list[tuple[Any, ...]], list[int]]:
        """The values of the returned rows, and the index of the row that each comes from.

        Values are taken from a row as soon as it is returned: a function may use one dict again and again.
        """
        function, take = self._program.function, _taker(self._names)
        known, size = self._known, len(self._names)
        records: list[tuple[Any, ...]] = []
        origins: list[int] = []
        skipped = frozenset(bad)
        for index, row in enumerate(rows):
            if skipped and index in skipped:
                continue
            begun = len(records)
            try:
                result = function(row)
                if result is None:
                    continue
                for returned in (result,) if result.__class__ is dict else _returned_rows(result):
                    try:
                        records.append(take(returned))
                        whole = True
                    except KeyError:
                        records.append(tuple(map(returned.get, self._names)))
                        whole = False
                    origins.append(index)
                    if not whole or (len(returned) > size and returned.keys() != known):
                        outcome.add_keys(returned.keys() - known)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # also what is no Exception, such as a panic of a native library
                del records[begun:], origins[begun:]
                bad[index] = (_FAILED, _describe(error, self._program))
        return records, origins

    def _build(self, records: Sequence[tuple[Any, ...]], outcome: Outcome) -> tuple[list[pa.Array], dict[int, str]]:
        faults: dict[int, str] = {}
        arrays = []
        values: Iterable[Sequence[Any]] = zip(*records, strict=True) if records else [()] * len(self._builders)
        for column, build, own in zip(self._columns, self._builders, values, strict=True):
            casting = Casting()
            arrays.append(build(own, casting))
            outcome.nulled += casting.nulled
            for index, fault in casting.faults.items():
                faults.setdefault(index, f"column '{column.name}': {fault}")
        return arrays, faults

    def _assemble(self, arrays: Sequence[pa.Array], batch: pa.RecordBatch, origins: Sequence[int]) -> pa.RecordBatch:
        """A returned row has the operation of the row it comes from."""
        operations = batch.column(OPERATION_COLUMN)
        if len(origins) != batch.num_rows or origins != list(range(batch.num_rows)):
            operations = operations.take(pa.array(origins, pa.int64()))
        own = dict(zip(self._names, arrays, strict=True)) | {OPERATION_COLUMN: operations}
        return pa.RecordBatch.from_arrays([own[name] for name in self._schema.names], schema=self._schema)


class BatchCalls:
    """A function that gets a record batch and returns one, a table, several of them, or None."""

    def __init__(
        self, program: LoadedProgram, input_schema: Schema, schema: Schema, node: str, *, search: bool
    ) -> None:
        """`search`: find the rows at fault when a call fails, with calls for halves of the batch."""
        self._program = program
        self._input_schema = input_schema
        self._schema = arrow_schema(schema)
        self._names = frozenset(self._schema.names)
        self._node = node
        self._search = search

    def run(self, batch: pa.RecordBatch) -> Iterator[Outcome]:
        outcome = Outcome()
        self._call(to_plugin(batch, self._input_schema, self._node), outcome)
        yield outcome

    def _call(self, batch: pa.RecordBatch, outcome: Outcome) -> None:
        try:
            made = [self._accept(part, outcome) for part in _returned_batches(self._program.function(batch))]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(batch, error, outcome)
            return
        for part in made:
            unknown = unknown_operations(part)
            objects = json_objects(part, list(unknown))
            outcome.bad += [
                BadRow("unknown_operation", text, {}, row=row)
                for text, row in zip(unknown.values(), objects, strict=True)
            ]
            if unknown:
                part = part.take(pa.array([n for n in range(part.num_rows) if n not in unknown], pa.int64()))
            if part.num_rows:
                outcome.batches.append(part)

    def _fail(self, batch: pa.RecordBatch, error: BaseException, outcome: Outcome) -> None:
        message = _describe(error, self._program)
        if batch.num_rows == 1:
            outcome.bad += _bad_rows(batch, {0: (_FAILED, message)})
        elif self._search:
            middle = batch.num_rows // 2
            self._call(batch.slice(0, middle), outcome)
            self._call(batch.slice(middle), outcome)
        else:
            hint = "with on_error skip or dead_letter the rows at fault are searched for, and the others are passed on"
            text = f"the function failed for a batch of {batch.num_rows} rows: {message}"
            raise PermanentError(DATA_ERROR, text, node=self._node, hint=hint, cause=error)

    def _accept(self, batch: pa.RecordBatch, outcome: Outcome) -> pa.RecordBatch:
        names = batch.schema.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise WrongResult(f"returned the column '{twice}' twice")
        if OPERATION_COLUMN not in names:
            raise WrongResult(f"returned no column '{OPERATION_COLUMN}': pass on that of the input")
        outcome.add_keys(name for name in names if name not in self._names)
        columns = [self._cast(batch, column) for column in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _cast(self, batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
        if column.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, column.type)
        try:
            return cast_array(batch.column(column.name), column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise WrongResult(f"column '{column.name}' does not fit {column.type}: {error}") from error


def _taker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A function that takes these values out of a dict."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: tuple(row[name] for name in names)


def _returned_rows(result: Any) -> list[Mapping[str, Any]] | Iterator[Mapping[str, Any]]:
    """The rows in what a function returned, other than a plain dict or None."""
    if isinstance(result, Mapping):
        return [result]
    if isinstance(result, list | tuple | Iterator):
        return (_row(item) for item in result if item is not None)
    raise _wrong(result)


def _row(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    raise _wrong(item, "in a list ")


def _wrong(result: Any, where: str = "") -> WrongResult:
    if inspect.isawaitable(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody has awaited it
        return WrongResult("the function is async, and must not be")
    kind = type(result).__name__
    return WrongResult(f"the function returned {where}a value of type {kind}; a row is a dict, no row is None")


def _returned_batches(result: Any) -> Iterator[pa.RecordBatch]:
    if result is None:
        return
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.to_batches()
    elif isinstance(result, list | tuple | Iterator):
        for item in result:
            yield from _returned_batches(item)
    elif inspect.isawaitable(result) or inspect.isasyncgen(result):
        raise _wrong(result)
    else:
        kind = type(result).__name__
        raise WrongResult(f"the function returned a value of type {kind}, not a pyarrow.RecordBatch or Table")


def _describe(error: BaseException, program: LoadedProgram) -> str:
    return str(error) if isinstance(error, WrongResult) else program.describe(error)


def _bad_rows(batch: pa.RecordBatch, bad: Mapping[int, tuple[str, str]]) -> Iterator[BadRow]:
    indexes = sorted(bad)
    for index, row in zip(indexes, json_objects(batch, indexes), strict=True):
        reason, message = bad[index]
        yield BadRow(reason, message, {}, row=row)
