"""`print`: one line per row on standard output.

Delivery: at least once. A printed line cannot be taken back, so an epoch that is replayed after a crash prints its
rows again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import Field

from streamling.connector import (
    Epoch,
    Kind,
    Report,
    Sink,
    SinkCapabilities,
    SinkContext,
    Task,
    batch_policy,
    register,
)
from streamling.disk import disk_errors
from streamling.errors import DATA_ERROR, SINK_FAILED, PermanentError
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Batched, Parallel, SinkOptions
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

_WORDS = {"i": "Insert", "u": "Update", "d": "Delete"}


class PrintOptions(Batched, Parallel, SinkOptions):
    """Rows as JSON on standard output."""

    sample_every: int | None = Field(default=None, ge=1, description="Print every n-th row.")
    num_records_before_stop: int | None = Field(default=None, ge=0, description="Stop the run after this many rows.")


class PrintSink(Sink):
    def __init__(self, node: NodeSpec, sample_every: int, record_limit: int | None) -> None:
        self.capabilities = SinkCapabilities(batch=batch_policy(node.options), record_limit=record_limit)
        self._spec = node
        self._node = node.name
        self._sample_every = sample_every
        self._seen = 0
        self._columns: Schema | None = None

    def open(self, context: SinkContext) -> None:
        self._columns = context.schema

    def writer(self) -> PrintSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        from streamling.formats.json import json_rows

        arrived = printed = 0
        seen = self._seen  # a retried write counts from here again
        for batch in batches:
            lines = []
            operations = batch.column(batch.schema.get_field_index(OPERATION_COLUMN)).to_pylist()
            for operation, row in zip(operations, json_rows(batch, self._columns), strict=True):
                word = _WORDS.get(operation)
                if word is None:
                    raise PermanentError(
                        DATA_ERROR,
                        f"{OPERATION_COLUMN} is {operation!r}; it must be i, u or d; row: {row}",
                        node=self._node,
                    )
                seen += 1
                if seen % self._sample_every == 0:
                    lines.append(f"{seen} -> (sample_every={self._sample_every}) [{word}] {row}\n")
            self._print("".join(lines))
            arrived, printed = arrived + batch.num_rows, printed + len(lines)
        self._seen = seen
        return Report(arrived, detail=printed)

    def _print(self, text: str) -> None:
        with disk_errors(self._spec, "type"):
            try:
                sys.stdout.write(text)
                sys.stdout.flush()
            except BrokenPipeError as error:
                _drop_unwritten()
                message = f"{self._spec.described()}: standard output is closed by its reader"
                raise PermanentError(SINK_FAILED, message, node=self._node, where=self._spec.where) from error
            except OSError:
                _drop_unwritten()
                raise

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        return sum(report.detail for report in reports if isinstance(report.detail, int))


def _drop_unwritten() -> None:
    """Empty the buffer of standard output: otherwise the next flush, when the error is shown, would fail as well."""
    with suppress(OSError, ValueError):  # not a file: no such buffer
        number = sys.stdout.fileno()
        original, nowhere = os.dup(number), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, number)
            sys.stdout.flush()
        finally:
            os.dup2(original, number)
            os.close(original)
            os.close(nowhere)


def _build(node: NodeSpec, settings: Settings) -> PrintSink:
    if not isinstance(node.options, PrintOptions):
        raise TypeError(node.options)
    common, own_limit = settings.print_sink, node.options.num_records_before_stop
    return PrintSink(
        node,
        node.options.sample_every or common.sample_every,
        own_limit if own_limit is not None else common.num_records_before_stop,
    )


register(Kind(Role.SINK, "print", PrintOptions, _build))
