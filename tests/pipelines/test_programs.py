"""Programs that run pipelines: the code of the guide, and what is between two runs: state, and plugins that changed."""

from __future__ import annotations

import pytest

from support.doc_pages import ROOT, blocks_of
from support.harness import Workspace

pytestmark = pytest.mark.spark

# Follows the code of the guide, which has its names, in one process: a fourth start of Java.
RESUMING = """
from pathlib import Path

Path("numbers.yaml").write_text(PIPELINE)
with streamling.Session({"state_backend": {"sqlite": {"database_path": "own.db"}}}) as session:
    assert session.run("numbers.yaml").rows == 5
    again = session.run(Path("numbers.yaml"))
    assert (again.rows, again.epochs, again.rows_of) == (0, 0, {"kept": []})
print("all well")
"""

STAMPED = """
sources:
  numbers: {type: generator, rows: 6000, primary_key: id, columns: {id: id, stamp: "id * 0"}}
transforms:
  stamped: {type: stamp, from: numbers}
  kept: {type: sql, primary_key: id, sql: "SELECT id, stamp, bonus(id) AS bonus FROM stamped WHERE id % 100 = 0"}
sinks:
  out: {type: memory, from: kept}
"""
STAMP = """
import pyarrow as pa
from streamling.plugin import TransformPlugin, register_transform, register_udf

register_udf("bonus", [pa.int64()], pa.int64(), lambda ids: pa.array([VALUE] * len(ids)))


@register_transform("stamp")
class Stamp(TransformPlugin):
    stateless = True

    def output_schema(self):
        return self.context.input_schema

    def process_batch(self, batch):
        values = pa.array([VALUE] * len(batch))
        return batch.set_column(batch.schema.names.index("stamp"), "stamp", values)
"""
EDITING = """
from pathlib import Path

import streamling

SETTINGS = {
    "plugin": {"path": "own.py"},
    "epoch": {"driver_rows": 100},
    "state_backend": {"backend_type": "InMemory"},
}
with streamling.Session(SETTINGS) as session:
    for value in (1, 2):
        Path("own.py").write_text(Path("stamp.txt").read_text().replace("VALUE", str(value)))
        rows = session.run("pipeline.yaml").rows_of["out"]
        assert len(rows) == 60, rows
        assert {(row["stamp"], row["bonus"]) for row in rows} == {(value, value)}, rows
print("all well")
"""


def test_the_programs_of_the_guide_run_one_after_the_other_in_one_process(place: Workspace) -> None:
    guide = [block.text for block in blocks_of(ROOT / "docs" / "programs.md", "python")]
    assert len(guide) == 3
    assert place.run_program("\n".join([*guide, RESUMING])).succeeded().stdout == "all well\n"


def test_a_plugin_that_was_edited_between_two_runs_of_a_session_is_the_new_one_everywhere(place: Workspace) -> None:
    """Workers are kept between runs; those that know the old one must not answer."""
    place.write(STAMPED)
    (place.directory / "stamp.txt").write_text(STAMP)
    assert place.run_program(EDITING).succeeded().stdout == "all well\n"
