"""`print_sink`: rows as JSON on standard output.

Delivery: at least once; a printed row cannot be taken back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from streamling.plugin import PluginContext, PluginError, SinkPlugin, register_sink

if TYPE_CHECKING:
    import pyarrow as pa


@register_sink("print_sink")
class JsonPrintSink(SinkPlugin):
    """Prints rows as JSON: `mode: batch` one array per batch, `mode: row` one object per line."""

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        super().__init__(context, options)
        self._mode = options.get("mode", "batch")
        if self._mode not in ("batch", "row"):
            raise PluginError(f"'mode' must be 'batch' or 'row', not '{self._mode}'", user=True)

    def process_batch(self, batch: pa.RecordBatch) -> None:
        from streamling.formats.json import json_rows

        rows = json_rows(batch)
        text = "".join(f"{row}\n" for row in rows) if self._mode == "row" else f"[{','.join(rows)}]\n"
        sys.stdout.write(text)

    def process_checkpoint_marker(self, epoch: int) -> None:
        sys.stdout.flush()
