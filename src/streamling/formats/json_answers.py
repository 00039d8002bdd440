"""Rows from the answers of an HTTP endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import unknown_operations
from streamling.formats.bodies import BadBody
from streamling.formats.json_messages import ObjectDecoder
from streamling.plan.types import OPERATION_COLUMN, Field, Schema, struct_of

_DATA = "data"


@dataclass(frozen=True, slots=True)
class BadElement:
    """An object of an answer that is not a row. `reason` is `decode_error` if it is not an object at all."""

    index: int
    reason: str
    message: str


class AnswerDecoder:
    """Decodes objects against columns: fields that are not columns are ignored, missing ones are null if they may be.

    In version 1 the row is the field `data`, and `metadata.op` its operation unless it has one of its own.
    """

    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._required = [f.name for f in schema if not f.nullable and f.name != OPERATION_COLUMN]
        fields = [Field(_DATA, struct_of(*schema.fields))] if version == 1 else schema.fields
        self._decoder = ObjectDecoder(fields)

    def rows(
        self, elements: Sequence[bytes], operations: pa.Array | None = None
    ) -> Iterator[pa.RecordBatch | BadElement]:
        """The rows, in order, and the objects that are none. `operations`: those of rows that have none."""
        first = 0
        for item in self._decoder.rows(elements):
            if isinstance(item, BadBody):
                yield BadElement(first, item.reason, item.message.replace(f"'{_DATA}.", "'", 1))
                first += 1
                continue
            batch, problems = self._unwrap(item)
            batch = self._with_operations(batch, elements[first : first + item.num_rows], operations, first)
            problems = self._missing(batch) | unknown_operations(batch) | problems
            for index in sorted(problems):
                yield BadElement(first + index, "schema_mismatch", problems[index])
            if len(problems) < batch.num_rows:
                yield _without(batch, problems) if problems else batch
            first += item.num_rows

    def _unwrap(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows inside of envelopes, and what is wrong with those that have none."""
        if self._version == 0:
            return batch, {}
        data = batch.column(0)
        missing = pc.indices_nonzero(data.is_null()).to_pylist()
        rows = pa.RecordBatch.from_arrays(data.flatten(), names=[f.name for f in self._schema])
        return rows, dict.fromkeys(missing, f"the field '{_DATA}' is missing")

    def _with_operations(
        self, batch: pa.RecordBatch, elements: Sequence[bytes], operations: pa.Array | None, first: int
    ) -> pa.RecordBatch:
        """The batch with operations where the rows have none of their own."""
        position = batch.schema.get_field_index(OPERATION_COLUMN)
        own = batch.column(position)
        if not own.null_count:
            return batch
        others = operations.slice(first, batch.num_rows) if operations is not None else pa.nulls(len(own), pa.string())
        if self._version == 1:
            sent = [_sent_operation(elements[i]) if not own[i].is_valid else None for i in range(len(own))]
            others = pc.coalesce(pa.array(sent, pa.string()), others)
        return batch.set_column(position, OPERATION_COLUMN, pc.coalesce(own, others))

    def _missing(self, batch: pa.RecordBatch) -> dict[int, str]:
        """The rows without a value that every row must have."""
        problems: dict[int, str] = {}
        for name in self._required:
            column = batch.column(name)
            if column.null_count:
                indexes = pc.indices_nonzero(column.is_null()).to_pylist()
                problems |= dict.fromkeys(indexes, f"column '{name}' is missing or null")
        return problems


def _sent_operation(element: bytes) -> str | None:
    metadata = json.loads(element).get("metadata")
    operation = metadata.get("op") if isinstance(metadata, dict) else None
    return operation if isinstance(operation, str) else None


def _without(batch: pa.RecordBatch, indexes: dict[int, str]) -> pa.RecordBatch:
    return batch.take(pa.array([n for n in range(batch.num_rows) if n not in indexes], pa.int64()))
