"""An epoch that is too large is cut into smaller ones in the same run: each row still comes once."""

from __future__ import annotations

import json

import pytest

from support.harness import Workspace

pytestmark = pytest.mark.spark

PLUGIN = """\
import pyarrow as pa
import pyarrow.compute as pc

from streamling.plugin import PluginError, TransformPlugin, register_transform


@register_transform("new_ones")
class NewOnes(TransformPlugin):
    def __init__(self, context, options):
        super().__init__(context, options)
        self.seen = set()

    def output_schema(self):
        return self.context.input_schema

    def process_batch(self, batch):
        new = [id_ not in self.seen for id_ in batch.column("id").to_pylist()]
        self.seen.update(batch.column("id").to_pylist())
        return batch.filter(pa.array(new))


@register_transform("no_hundreds")
class NoHundreds(TransformPlugin):
    stateless = True

    def output_schema(self):
        return self.context.input_schema

    def process_batch(self, batch):
        bad = {n: "a hundred" for n, id_ in enumerate(batch.column("id").to_pylist()) if id_ % 100 == 0}
        if bad:
            raise PluginError("hundreds", rows=bad)
        return batch
"""
REMEMBERING = """\
sources:
  numbers: {type: generator, rows: 2000, primary_key: id, columns: {id: id}}
transforms:
  new: {type: new_ones, from: numbers}
  long: {type: sql, primary_key: id, sql: "SELECT id, repeat('x', 1000) AS text FROM new"}
  again: {type: new_ones, from: long}
sinks:
  out: {type: file, from: again, path: out, format: parquet}
"""
READ_TWICE = """\
sources:
  numbers: {type: generator, rows: 40000, primary_key: id, columns: {id: id}}
transforms:
  good:
    type: no_hundreds
    from: numbers
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
  both: {type: sql, primary_key: id, sql: "SELECT id FROM good UNION ALL SELECT id + 100000 AS id FROM good"}
sinks:
  out: {type: file, from: both, path: out, format: parquet}
"""


def test_a_transform_that_remembers_rows_gets_each_of_them_once(place: Workspace) -> None:
    place.write(REMEMBERING, plugin=PLUGIN)
    place.run(EPOCH__BYTES=20_000).succeeded()
    assert sorted(row["id"] for row in place.rows("out", "parquet")) == list(range(2000))


def test_a_transform_that_a_query_reads_twice_has_one_letter_for_each_bad_row(place: Workspace) -> None:
    place.write(READ_TWICE, plugin=PLUGIN)
    place.run(EPOCH__DRIVER_ROWS=0).succeeded()
    letters = [json.loads(line) for file in (place.directory / "letters").iterdir() for line in file.open()]
    assert sorted(letter["row"]["id"] for letter in letters) == list(range(0, 40_000, 100))
    good = [n for n in range(40_000) if n % 100]
    assert sorted(row["id"] for row in place.rows("out", "parquet")) == sorted([*good, *(n + 100_000 for n in good)])
