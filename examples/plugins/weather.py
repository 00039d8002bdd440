"""A plugin file with one of everything: a source, a transform, a sink and a SQL function.

STREAMLING__PLUGIN__PATH=examples/plugins/weather.py streamling run examples/plugins/weather.yaml
"""

import json
import math
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import (
    PluginError,
    SinkPlugin,
    SourcePlugin,
    TransformPlugin,
    register_sink,
    register_source,
    register_transform,
    register_udf,
)

READINGS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("station", pa.string(), nullable=False),
        pa.field("celsius", pa.float64(), nullable=False),
        pa.field("_gs_op", pa.string(), nullable=False),
    ]
)
STATIONS = ("harbour", "hill", "wood")


@register_source("weather.stations")
class Stations(SourcePlugin):
    """Readings of three stations, `readings` in all; a restart continues after the last delivered one."""

    bounded = True

    def __init__(self, context, options):
        super().__init__(context, options)
        self.readings = int(options.get("readings", "30"))
        self.next = 0
        self.noted = {}

    def output_schema(self):
        return READINGS

    def initialize(self):
        self.next = self.context.state.get() or 0

    def is_running(self):
        return self.next < self.readings

    def generate_batch(self):
        ids = range(self.next, min(self.next + 10, self.readings))
        self.next = ids.stop
        rows = [
            {"id": n, "station": STATIONS[n % 3], "celsius": round(15 + 10 * math.sin(n / 8), 1), "_gs_op": "i"}
            for n in ids
        ]
        return pa.RecordBatch.from_pylist(rows, schema=READINGS)

    def process_checkpoint_marker(self, epoch):
        self.noted[epoch] = self.next

    def process_checkpoint_finalizer(self, epoch):
        done = [noted for noted in self.noted if noted <= epoch]
        if done:
            self.context.state.put(self.noted[max(done)])
        self.noted = {noted: position for noted, position in self.noted.items() if noted > epoch}


@register_transform("weather.plausible")
class Plausible(TransformPlugin):
    """Rejects readings outside of `least` to `most` degrees."""

    def __init__(self, context, options):
        super().__init__(context, options)
        self.least, self.most = float(options.get("least", "-60")), float(options.get("most", "60"))
        if self.least > self.most:
            raise PluginError(f"least is {self.least:g}, which is more than {self.most:g}", user=True)

    def output_schema(self):
        return self.context.input_schema

    def process_batch(self, batch):
        values = batch.column("celsius").to_pylist()
        odd = {row: f"{value} degrees" for row, value in enumerate(values) if not self.least <= value <= self.most}
        if odd:
            raise PluginError("implausible readings", rows=odd)
        return batch


@register_sink("weather.lines")
class Lines(SinkPlugin):
    """Appends rows as JSON lines to the file `path`."""

    def __init__(self, context, options):
        super().__init__(context, options)
        self.path = Path(options["path"])
        self.file = None

    def initialize(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.path.open("a")

    def process_batch(self, batch):
        self.file.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())

    def process_checkpoint_marker(self, epoch):
        self.file.flush()
        os.fsync(self.file.fileno())

    def terminate(self):
        if self.file is not None:
            self.file.close()


def fahrenheit(celsius):
    """Degrees Celsius as Fahrenheit."""
    return pc.add(pc.multiply(celsius, 1.8), 32.0)


register_udf("fahrenheit", [pa.float64()], pa.float64(), fahrenheit)
