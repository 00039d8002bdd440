"""Random values, such as `uuid()`, are the same in all sinks of an epoch and in its replay."""

from __future__ import annotations

import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.harness import Row, Workspace

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 30_000
# One path, so that the sinks flush in turn: a crash comes when `a` has the epoch and `b` has not.
PIPELINE = f"""\
sources:
  numbers: {{type: generator, rows: {ROWS}, primary_key: id, columns: {{id: id, text: "repeat('x', 40)"}}}}
transforms:
  made_up:
    type: sql
    primary_key: id
    sql: >
      SELECT id, text, uuid() AS u, uuid7() AS v, random() AS r, now() AS n FROM numbers WHERE random() < 0.5
sinks:
  a: {{type: file, from: made_up, path: out, format: parquet}}
  b: {{type: file, from: made_up, path: out, format: parquet}}
"""


def rows_of(place: Workspace, sink: str) -> list[Row]:
    files = [file for file in place.files("out", "parquet") if file.name.startswith(f"{sink}-")]
    tables = [
        table
        for file, table in zip(place.files("out", "parquet"), place.tables("out", "parquet"), strict=True)
        if file in files
    ]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["id"])


@pytest.mark.parametrize(
    "settings", [{"EPOCH__DRIVER_ROWS": 20_000, "EPOCH__ROWS": 7_000}, {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 20_000}]
)
def test_two_sinks_agree_also_after_a_crash_between_their_commits(place: Workspace, settings: dict[str, int]) -> None:
    place.write(PIPELINE)
    killed = place.run(environment={VARIABLE: "before-commit:b"}, **settings)
    assert killed.code == -signal.SIGKILL, killed.stderr
    assert rows_of(place, "a")
    # In the other place now: the record decides how the epoch is replayed, not what this process would choose.
    place.run(EPOCH__DRIVER_ROWS=1_000).succeeded()
    a, b = rows_of(place, "a"), rows_of(place, "b")
    assert a == b
    assert 0.4 * ROWS < len(a) < 0.6 * ROWS
    assert len({row["u"] for row in a}) == len({row["v"] for row in a}) == len(a)
