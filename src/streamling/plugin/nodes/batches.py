"""Batches on their way to a plugin: in the size the node asks for, dealt to the instances."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from streamling.connector import BadRow
from streamling.errors import PLUGIN_FAILED, PermanentError, StreamlingError
from streamling.formats.arrow import unknown_operations
from streamling.formats.exchange import from_plugin
from streamling.formats.json import json_row
from streamling.plan.types import Schema
from streamling.plugin.bases import ByColumns, ByPrimaryKey, PluginError, RoundRobin, Spread
from streamling.plugin.nodes.instance import Instance

_REASON = "plugin_error"


def rebatch(batches: Iterable[pa.RecordBatch], size: int | None) -> Iterator[pa.RecordBatch]:
    """Pieces of `size` rows, the last one smaller; the batches as they come if there is no size. None is empty."""
    if size is None:
        yield from (batch for batch in batches if batch.num_rows)
        return
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, size - rows)
            held.append(piece)
            rows += piece.num_rows
            batch = batch.slice(piece.num_rows)
            if rows == size:
                yield pa.concat_batches(held)
                held, rows = [], 0
    if held:
        yield pa.concat_batches(held)


class Dealer:
    """Which rows go to which instance."""

    def __init__(self, placement: Spread, primary_key: tuple[str, ...], count: int) -> None:
        self._count = count
        self._turn = itertools.count()
        self._columns: tuple[str, ...] | None = None
        if isinstance(placement, ByColumns):
            self._columns = placement.columns
        elif isinstance(placement, ByPrimaryKey):
            self._columns = primary_key
        elif not isinstance(placement, RoundRobin):
            raise PermanentError(PLUGIN_FAILED, f"{placement!r} is no placement")

    def deal(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """One batch per instance, in the order of the rows; one may be empty."""
        if self._count == 1:
            return [batch]
        rows: list[list[int]] = [[] for _ in range(self._count)]
        for number, instance in enumerate(self._instances(batch)):
            rows[instance].append(number)
        return [batch.take(pa.array(chosen, pa.int64())) for chosen in rows]

    def _instances(self, batch: pa.RecordBatch) -> Iterator[int]:
        if self._columns is None:
            yield from (next(self._turn) % self._count for _ in range(batch.num_rows))
            return
        keys = zip(*(batch.column(name).to_pylist() for name in self._columns), strict=True)
        yield from (_hash(key) % self._count for key in keys)


def _hash(key: tuple[Any, ...]) -> int:
    """The same in every process and every version: rows of a key must find the instance that has its earlier ones."""
    return zlib.crc32(repr(key).encode())


def process(instances: Sequence[Instance], dealt: Sequence[pa.RecordBatch], bad: list[BadRow]) -> list[Any]:
    """`process_batch` of every instance that has rows, side by side; what they gave.

    Rows that one names at fault are added to `bad`, and it is called again with the others.
    """
    under_way = [
        (i, batch, i.submit("process_batch", batch))
        for i, batch in zip(instances, dealt, strict=True)
        if batch.num_rows
    ]
    results, errors = [], []
    for instance, batch, first in under_way:
        future: Future[Any] | None = first
        try:
            while (refusal := _refusal(future)) is not None:
                batch = _without(batch, refusal, bad)
                future = instance.submit("process_batch", batch) if batch.num_rows else None
            results.append(future.result() if future is not None else None)
        except StreamlingError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def _refusal(future: Future[Any] | None) -> PluginError | None:
    error = future.exception() if future is not None else None
    return error if isinstance(error, PluginError) else None


def _without(batch: pa.RecordBatch, error: PluginError, bad: list[BadRow]) -> pa.RecordBatch:
    rows = {number: text for number, text in (error.rows or {}).items() if 0 <= number < batch.num_rows}
    if not rows:
        message = f"process_batch names rows that are not in the batch: {error.rows}: {error.message}"
        raise PermanentError(PLUGIN_FAILED, message, cause=error)
    for number, text in sorted(rows.items()):
        bad.append(BadRow(_REASON, str(text) or error.message, {}, row=json_row(batch, number)))
    return _all_but(batch, rows)


def accept_batches(
    given: Any, columns: Schema, node: str, described: str, method: str
) -> Iterator[pa.RecordBatch | BadRow]:
    """What a method gave, as batches with rows for the engine. Nothing at all is no rows.

    Rows without a known operation are bad rows, and stand in front of their batch.
    """
    if given is None:
        return
    batches = given.to_batches() if isinstance(given, pa.Table) else [given]
    problem = None
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            problem = f"gave {type(batch).__name__}, not a pyarrow.RecordBatch"
        elif extra := [name for name in batch.schema.names if name not in columns]:
            problem = f"gave the column '{extra[0]}', which output_schema does not have"
    if problem is not None:
        raise PermanentError(PLUGIN_FAILED, f"{described}: {method} {problem}", node=node)
    for batch in batches:
        fitting = from_plugin(batch, columns, node)
        unknown = unknown_operations(fitting)
        for index, text in unknown.items():
            yield BadRow("unknown_operation", f"{method}: {text}", {}, row=json_row(fitting, index))
        if len(unknown) < fitting.num_rows:
            yield _all_but(fitting, unknown) if unknown else fitting


def _all_but(batch: pa.RecordBatch, rows: Container[int]) -> pa.RecordBatch:
    return batch.take(pa.array([n for n in range(batch.num_rows) if n not in rows], pa.int64()))
