"""`basic_plugin.random_source`: random rows.

Delivery: rows are random, so a restart gives others; `max_rows` counts over restarts.
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
    """Random rows of a text and a number; `max_rows` ends it, `record_batch_size` rows come at a time."""

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self._most = _number(options, "max_rows", None, least=0)
        self._size = _number(options, "record_batch_size", 1000, least=1) or 1000
        self.bounded = self._most is not None
        self._made = 0
        self._noted: dict[int, int] = {}

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
        self._made = stored if isinstance(stored, int) else 0

    def is_running(self) -> bool:
        return not self._terminated and (self._most is None or self._made < self._most)

    async def generate_batch(self) -> pa.RecordBatch:
        import pyarrow as pa

        rows = self._size if self._most is None else min(self._size, self._most - self._made)
        self._made += rows
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
        self._noted[epoch] = self._made

    async def process_checkpoint_finalizer(self, epoch: int) -> None:
        done = [noted for noted in self._noted if noted <= epoch]
        if done and self._most is not None:
            self.context.state.put(self._noted[max(done)])
        for noted in done:
            del self._noted[noted]


def _number(options: dict[str, str], name: str, default: int | None, *, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise PluginError(f"'{name}' must be a whole number of at least {least}, not '{text}'", user=True)
    return int(text)
