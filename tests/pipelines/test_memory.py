"""Memory is bounded by bytes, whatever rows look like: with the default heap, in one run."""

from __future__ import annotations

import pytest

from support.harness import AS_INSTALLED, Workspace

pytestmark = pytest.mark.spark

ROWS = 120_000
# A sink that stays in the driver: whatever the query makes of a row comes here.
COLLECTING = """\
from pathlib import Path

from streamling.plugin import SinkPlugin, register_sink


@register_sink("weigh")
class Weigh(SinkPlugin):
    rows = size = 0

    def process_batch(self, batch):
        self.rows += batch.num_rows
        self.size += batch.nbytes

    def process_checkpoint_marker(self, epoch):
        Path("weighed").write_text(f"{self.rows} {self.size}")
"""
# The source gives eight bytes a row. Before, an epoch took as many of them as fit, and the query made gigabytes of it.
PIPELINE = f"""\
sources:
  numbers: {{type: generator, rows: {ROWS}, primary_key: id, columns: {{id: id}}}}
transforms:
  long: {{type: sql, primary_key: id, sql: "SELECT id, repeat(concat('row ', id, ' '), 600) AS text FROM numbers"}}
sinks:
  out: {{type: weigh, from: long}}
"""


def test_long_rows_pass_the_driver_with_the_default_heap_in_one_run(place: Workspace) -> None:
    place.write(PIPELINE, plugin=COLLECTING)
    finished = place.run(environment=AS_INSTALLED).succeeded()
    rows, size = map(int, (place.directory / "weighed").read_text().split())
    assert rows == ROWS, finished.stderr
    assert size > 600_000_000
