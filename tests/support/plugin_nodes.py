"""The nodes of plugins as the engine has them, and rows for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamling.connector import BadRow, Counted, Epoch, Processor, Runtime, SinkContext, TransformContext, kinds
from streamling.engine.preparation import check
from streamling.engine.protocol.state import MemoryState
from streamling.plan.planned_node import PlannedNode
from streamling.plugin.nodes.sink import PluginSink
from streamling.plugin.nodes.source import PluginSource
from streamling.telemetry.metrics import Metrics
from support.plugin_files import settings

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("_gs_op", pa.string(), False)])
EPOCH = Epoch("e", 1, "a", "g", 0, 0, ())
FIVE = "sources:\n  n: {type: generator, rows: 5, primary_key: id}\n"


def batch(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array(["i"] * len(ids))], schema=SCHEMA)


def ids(batches: Any) -> list[int]:
    return [i for b in batches for i in b.column("id").to_pylist()]


def processed(processor: Processor, *batches: pa.RecordBatch) -> tuple[list[int], list[BadRow]]:
    """The ids of the rows that a processor gives, and the rows it rejects."""
    given = list(processor.process(EPOCH, iter(batches)))
    bad = [item for item in given if isinstance(item, BadRow)]
    return ids([item for item in given if not isinstance(item, BadRow | Counted)]), bad


class Place:
    """Builds the nodes of a pipeline as a run does, with the plugins registered by the test and those in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings = settings()
        self.state, self.metrics = MemoryState(), Metrics()

    def node(self, text: str, ref: str) -> tuple[PlannedNode, Any]:
        file = self.directory / "pipeline.yaml"
        file.write_text(text)
        self.plan = check(file, self.settings, probe=False)
        node = self.plan.node(ref)
        built: Any = kinds.build(node.spec, self.settings)
        built.attach(Runtime("app", self.state, self.metrics))
        return node, built

    def source(self, fields: str = "type: own") -> PluginSource:
        text = f"sources:\n  s: {{{fields}, primary_key: id}}\nsinks:\n  o: {{type: blackhole, from: s}}\n"
        _, source = self.node(text, "s")
        assert isinstance(source, PluginSource)
        source.open({})
        return source

    def transform(self, fields: str = "type: own") -> Any:
        text = FIVE + f"transforms:\n  t: {{{fields}, from: n}}\nsinks:\n  o: {{type: blackhole, from: t}}\n"
        node, transform = self.node(text, "t")
        rows = self.plan.node("n").schema
        transform.open(TransformContext("t", "app", "g", rows, node.schema, node.primary_key, node.width))
        return transform

    def sink(self, fields: str = "type: own") -> PluginSink:
        node, sink = self.node(FIVE + f"sinks:\n  o: {{{fields}, from: n}}\n", "o")
        sink.open(SinkContext("o", "app", "g", node.schema, node.primary_key, node.width))
        assert isinstance(sink, PluginSink)
        return sink
