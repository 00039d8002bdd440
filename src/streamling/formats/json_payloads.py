"""Rows as the bodies of HTTP requests.

version 0    {"id":1,..,"_gs_op":"i"}
version 1    {"metadata":{"op":"i"},"data":{"id":1,..,"_gs_op":"i"}}

A body is one such object, or a list of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import unknown_operations
from streamling.formats.json_encoding import encode_json
from streamling.plan.types import OPERATION_COLUMN, Schema

# Rows encoded at once: a column of text holds at most 2 GB.
_CHUNK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class PayloadEncoder:
    columns: Schema
    version: int

    def objects(self, batch: pa.RecordBatch) -> list[bytes]:
        """One object per row, each with a known operation."""
        if batch.nbytes > _CHUNK_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            return self.objects(batch.slice(0, middle)) + self.objects(batch.slice(middle))
        texts = encode_json(batch, self.columns)
        if self.version == 1:
            operations = pc.utf8_lower(batch.column(OPERATION_COLUMN))
            texts = pc.binary_join_element_wise('{"metadata":{"op":"', operations, '"},"data":', texts, "}", "")
        values: list[bytes] = texts.cast(pa.binary()).to_pylist()
        return values


def join_objects(objects: Sequence[bytes]) -> bytes:
    """The body of a request with several rows."""
    return b"[" + b",".join(objects) + b"]"


def refused_operations(batch: pa.RecordBatch) -> dict[int, str]:
    """The rows that cannot be sent because of their operation, whose case does not matter, and what is wrong."""
    position = batch.schema.get_field_index(OPERATION_COLUMN)
    lowered = pc.utf8_lower(batch.column(position))
    return unknown_operations(batch.set_column(position, OPERATION_COLUMN, lowered))
