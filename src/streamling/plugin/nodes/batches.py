"""Batches on their way to a plugin: in the size that the node asks for, distributed to the instances."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Container, Iterator, Sequence
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
            raise PermanentError(PLUGIN_FAILED, f"{placement!r} is not a valid placement")

    def deal(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """One batch per instance, in the order of the rows; one may be empty."""
        if self._count == 1:
            return [batch]
        rows: list[list[int]] = [[] for _ in range(self._count)]
        for number, instance in enumerate(self._instances(batch)):
            rows[instance].append(number)
        return [batch.take(pa.array(numbers, pa.int64())) for numbers in rows]

    def _instances(self, batch: pa.RecordBatch) -> Iterator[int]:
        if self._columns is None:
            yield from (next(self._turn) % self._count for _ in range(batch.num_rows))
            return
        keys = zip(*(batch.column(name).to_pylist() for name in self._columns), strict=True)
        yield from (_hash(key) % self._count for key in keys)


def _hash(key: tuple[Any, ...]) -> int:
    """The same in every process and every version: rows of a key must go to the instance that got its earlier rows."""
    return zlib.crc32(repr(key).encode())


def process(instances: Sequence[Instance], batches: Sequence[pa.RecordBatch], bad: list[BadRow]) -> list[Any]:
    """Call `process_batch` of every instance that has rows, in parallel; returns the results.

    Rows that an instance rejects are added to `bad`, and it is called again with the others.
    """
    calls = [
        (i, batch, i.submit("process_batch", batch))
        for i, batch in zip(instances, batches, strict=True)
        if batch.num_rows
    ]
    results, errors = [], []
    for instance, batch, first in calls:
        future: Future[Any] | None = first
        try:
            while (rejection := _rejection(future)) is not None:
                batch = _without(batch, rejection, bad)
                future = instance.submit("process_batch", batch) if batch.num_rows else None
            results.append(future.result() if future is not None else None)
        except StreamlingError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def _rejection(future: Future[Any] | None) -> PluginError | None:
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
    result: Any, columns: Schema, node: str, described: str, method: str
) -> Iterator[pa.RecordBatch | BadRow]:
    """The result of a method as batches for the engine; None is no rows.

    Rows without a known operation are bad rows, and come before their batch.
    """
    if result is None:
        return
    batches = result.to_batches() if isinstance(result, pa.Table) else [result]
    problem = None
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            problem = f"returned {type(batch).__name__}, not a pyarrow.RecordBatch"
        elif extra := [name for name in batch.schema.names if name not in columns]:
            problem = f"returned the column '{extra[0]}', which output_schema does not have"
    if problem is not None:
        raise PermanentError(PLUGIN_FAILED, f"{described}: {method} {problem}", node=node)
    for batch in batches:
        cast = from_plugin(batch, columns, node)
        unknown = unknown_operations(cast)
        for index, text in unknown.items():
            yield BadRow("unknown_operation", f"{method}: {text}", {}, row=json_row(cast, index))
        if len(unknown) < cast.num_rows:
            yield _all_but(cast, unknown) if unknown else cast


def _all_but(batch: pa.RecordBatch, rows: Container[int]) -> pa.RecordBatch:
    return batch.take(pa.array([n for n in range(batch.num_rows) if n not in rows], pa.int64()))
