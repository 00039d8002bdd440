"""Programs of `python` transforms, called without an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamling.connector import BadRow, Counted, Epoch
from streamling.plan.types import Schema
from streamling.spec.pipeline.options import OnError
from streamling.transforms.python.processor import PythonProcessor
from streamling.transforms.python.program import inline_program

EPOCH = Epoch("e", 1, "a", "g", 0, 0, ())


@dataclass(frozen=True)
class Done:
    """What a processor gave for a batch."""

    batches: list[pa.RecordBatch]
    bad: list[BadRow]
    counts: list[Counted]
    schema: pa.Schema

    def column(self, name: str) -> pa.Array:
        return pa.Table.from_batches(self.batches, self.schema).column(name).combine_chunks()


def run_code(
    code: str, batch: pa.RecordBatch, schema: Schema, returns: Schema | None = None, *, per: str = "row"
) -> Done:
    """Call the function of this code with a batch; bad rows are set aside."""
    program = inline_program(code, "t", "p.yaml", Path("nowhere"), range(1, 100))
    processor = PythonProcessor("t", program, schema, returns or schema, per == "batch", OnError.SKIP, None)
    try:
        return processed(processor, batch)
    finally:
        processor.end()


def processed(processor: PythonProcessor, *batches: pa.RecordBatch) -> Done:
    from streamling.formats.arrow import arrow_schema

    given = list(processor.process(EPOCH, iter(batches)))
    return Done(
        [item for item in given if isinstance(item, pa.RecordBatch)],
        [item for item in given if isinstance(item, BadRow)],
        [item for item in given if isinstance(item, Counted)],
        arrow_schema(processor.schema),
    )
