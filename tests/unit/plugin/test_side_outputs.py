"""Side outputs as the plan of a run has them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamling.connector import Epoch, Runtime, SinkContext, Task
from streamling.engine.preparation import prepare
from streamling.engine.protocol.state import MemoryState
from streamling.errors import UserError
from streamling.plugin.side_outputs import SideOutput
from streamling.telemetry.labels import node_labels
from streamling.telemetry.metrics import Metrics
from support.plugin_files import checked, settings, write_plugin

OWN = """
@register_side_output("watch")
class Watch(SideOutputPlugin):
    def process_batch(self, batch):
        if self.options.get("refuse"):
            raise PluginError("no")
        self.metrics.record_count("seen", batch.num_rows)

@register_side_output("odd")
class Odd(SideOutputPlugin):
    def __init__(self, *args):
        raise ValueError("odd")
    def process_batch(self, batch): ...
"""
PIPELINE = """\
sources:
  a: {type: generator, rows: 1, primary_key: id, telemetry: {labels: {team: data}}}
  b: {type: generator, rows: 1, primary_key: id}
sinks:
  o: {type: blackhole, from: a}
  p: {type: blackhole, from: b}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_plugin(tmp_path, OWN)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def side_output(place: Path, id_: str, metrics: Metrics | None = None) -> SideOutput:
    prepared = prepare(place / "pipeline.yaml", settings(place, side_output_ids=[id_]))
    sink = prepared.sinks[f"a > {id_}"]
    assert isinstance(sink, SideOutput)
    sink.attach(Runtime("app", MemoryState(), metrics or Metrics()))
    node = prepared.plan.node(f"a > {id_}")
    sink.open(SinkContext(node.ref, "app", "g", node.schema))
    return sink


def test_every_source_has_one_of_each(place: Path) -> None:
    prepared = prepare(place / "pipeline.yaml", settings(place, side_output_ids=["watch"]))
    assert [n.ref for n in prepared.plan.sinks] == ["o", "p", "a > watch", "b > watch"]


def test_its_rows_are_counted_as_those_of_a_plugin(place: Path) -> None:
    plan = prepare(place / "pipeline.yaml", settings(place, side_output_ids=["watch"])).plan
    expected = {"id": "a > watch", "topology_node_type": "sink", "operator_type": "plugin", "type": "watch"}
    assert node_labels(plan.node("a > watch").spec) == expected


def test_its_metrics_carry_the_labels_of_the_source(place: Path) -> None:
    metrics = Metrics()
    sink = side_output(place, "watch", metrics)
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "_gs_op": ["i", "i"]})
    assert sink.write(Epoch("e", 1, "a", "g", 0, 0, ()), Task(0, 0), [batch]).rows == 2
    (seen,) = metrics.snapshot()
    labels = {"id": "a", "topology_node_type": "source", "operator_type": "generator", "team": "data"}
    assert (seen.name, seen.value, dict(seen.labels)) == ("streamling_seen", 2, labels)


def test_one_that_does_not_start_is_an_error_of_the_user(place: Path) -> None:
    with pytest.raises(UserError, match=r"side output 'odd' of generator source 'a' does not start: ValueError: odd"):
        side_output(place, "odd")


def test_one_that_nobody_provides_is_an_error_of_the_user(place: Path) -> None:
    with pytest.raises(UserError, match="side output 'lost' is not available; known side outputs: odd, watch"):
        checked(place, PIPELINE, side_output_ids=["lost"])
