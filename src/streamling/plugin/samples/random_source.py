"""`basic_plugin.random_source`: random rows.

Delivery: rows are random, so a restart gives other rows; `max_rows` counts across restarts.
"""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING

from streamling.plugin import PluginContext, PluginError, SourcePlugin, register_source

if TYPE_CHECKING:
    import pyarrow as pa

_ALPHABET = string.ascii_letters + string.digits
_LENGTH = 16


@register_source("basic_plugin", "random_source")
class RandomSource(SourcePlugin):
    """Random rows of a text and a number; ends after `max_rows`, generates `record_batch_size` rows at a time."""

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self._max_rows = _number(options, "max_rows", None, least=0)
        self._size = _number(options, "record_batch_size", 1000, least=1) or 1000
        self.bounded = self._max_rows is not None
        self._generated = 0
        self._marked: dict[int, int] = {}

    def output_schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(
            [
                pa.field("alphanumeric_field", pa.string(), nullable=False),
                pa.field("num_field", pa.int64(), nullable=False),
                pa.field("_gs_op", pa.string(), nullable=False),
            ]
        )

    async def initialize(self) -> None:
        stored = self.context.state.get()
        self._generated = stored if isinstance(stored, int) else 0

    def is_running(self) -> bool:
        return not self._terminated and (self._max_rows is None or self._generated < self._max_rows)

    async def generate_batch(self) -> pa.RecordBatch:
        import pyarrow as pa

        rows = self._size if self._max_rows is None else min(self._size, self._max_rows - self._generated)
        self._generated += rows
        columns = [
            ["".join(random.choices(_ALPHABET, k=_LENGTH)) for _ in range(rows)],
            [random.randrange(1000) for _ in range(rows)],
            ["i"] * rows,
        ]
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, self.output_schema(), strict=True)],
            schema=self.output_schema(),
        )

    async def process_checkpoint_marker(self, epoch: int) -> None:
        self._marked[epoch] = self._generated

    async def process_checkpoint_finalizer(self, epoch: int) -> None:
        done = [marked for marked in self._marked if marked <= epoch]
        if done and self._max_rows is not None:
            self.context.state.put(self._marked[max(done)])
        for marked in done:
            del self._marked[marked]


def _number(options: dict[str, str], name: str, default: int | None, *, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise PluginError(f"'{name}' must be a whole number of at least {least}, not '{text}'", user=True)
    return int(text)
