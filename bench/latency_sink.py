"""A plugin: notes of every row when it was made, in its column `created`, and when it arrived, in microseconds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamling.plugin import PluginContext, SinkPlugin, register_sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


@register_sink("bench.latency")
class LatencySink(SinkPlugin):
    def __init__(self, context: PluginContext, options: Mapping[str, str]) -> None:
        super().__init__(context, options)
        self.path = Path(options["path"])

    def initialize(self) -> None:
        self.file = self.path.open("w")

    def process_batch(self, batch: pa.RecordBatch) -> None:
        now = time.time_ns() // 1000
        self.file.writelines(f"{created} {now}\n" for created in batch.column("created").to_pylist())

    def process_checkpoint_marker(self, epoch: int) -> None:
        self.file.flush()

    def terminate(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
