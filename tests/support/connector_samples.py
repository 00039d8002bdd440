"""Connectors as a pipeline file describes them, and epochs to give them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from streamling.connector import Epoch, Report, Sink, SinkContext, Slice, Source, Task, kinds
from streamling.plan.pipeline import make_plan
from streamling.plan.types import OPERATION_FIELD, STRING, Field, Schema
from streamling.spec.pipeline import NodeSpec, load_pipeline
from streamling.spec.settings import Settings

SCHEMA = Schema((Field("name", STRING), OPERATION_FIELD))


def sink(fields: str, *, name: str = "out", settings: Settings | None = None) -> Any:
    """A sink made from its YAML fields, not opened."""
    return kinds.build(sink_node(fields, name=name), settings or Settings())


def sink_node(fields: str, *, name: str = "out") -> NodeSpec:
    text = f"sources: {{numbers: {{type: generator}}}}\nsinks: {{'{name}': {{from: numbers, {fields}}}}}"
    plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
    return plan.sinks[0].spec


def opened(fields: str, *, name: str = "out", schema: Schema = SCHEMA, settings: Settings | None = None) -> Any:
    made = sink(fields, name=name, settings=settings)
    made.open(SinkContext(name, "app", "gen", schema))
    return made


def source(fields: str) -> Source:
    """A source called `Numbers`, not opened."""
    text = f"sources: {{Numbers: {{{fields}}}}}\nsinks: {{out: {{type: blackhole, from: numbers}}}}"
    plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
    return kinds.build(plan.sources[0].spec, Settings())  # type: ignore[return-value]


def epoch(number: int, start: int, end: int, *, id_: str | None = None, key: str = "k") -> Epoch:
    """The rows from one number to another of one state key."""
    slice_ = Slice("numbers", key, start or None, end, ([start, end],), end - start)
    return Epoch(id_ or f"{number:08d}{end:024d}", number, "app", "gen", 0, 0, (slice_,))


def rows(names: Sequence[object], operation: object = "i") -> pa.RecordBatch:
    """A batch with a row per name."""
    columns = [pa.array(names), pa.array([operation] * len(names), pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=["name", "_gs_op"])


def written(to: Sink, epoch_: Epoch, *names: str, task: Task = Task(0, 0)) -> Report:  # noqa: B008
    return to.writer().write(epoch_, task, [rows(names)])


def read_rows(path: Path, format_: str) -> pa.Table:
    """The rows of one written file."""
    match format_:
        case "parquet":
            return pyarrow.parquet.read_table(path)
        case "csv":
            return pyarrow.csv.read_csv(path)
        case _:
            return pyarrow.json.read_json(path)
