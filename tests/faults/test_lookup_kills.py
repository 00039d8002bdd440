"""A lookup that changes while a pipeline is down: the interrupted epoch is replayed with the rows that it had seen."""

from __future__ import annotations

import shutil
import signal

import pytest

from streamling.testing.crash import VARIABLE
from support.harness import Row, Workspace

pytestmark = [pytest.mark.faults, pytest.mark.spark]

# One path, so that the sinks flush in turn: a crash comes when `a` has the epoch and `b` has not.
PIPELINE = """\
sources:
  numbers: {type: generator, rows: 40, primary_key: id, columns: {id: id, key: id % 4}}
transforms:
  names: {type: lookup, path: names.csv, format: csv, primary_key: id}
  named: {type: sql, primary_key: id, sql: "SELECT n.id, l.name FROM numbers n LEFT JOIN names l ON n.key = l.id"}
sinks:
  a: {type: file, from: named, path: out, format: parquet}
  b: {type: file, from: named, path: out, format: parquet}
"""


def rows_of(place: Workspace, sink: str) -> list[Row]:
    pairs = zip(place.files("out", "parquet"), place.tables("out", "parquet"), strict=True)
    rows = [row for file, table in pairs if file.name.startswith(f"{sink}-") for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def write_names(place: Workspace, version: str) -> None:
    text = "id,name\n" + "".join(f"{key},{version}\n" for key in range(3))
    (place.directory / "names.csv").write_text(text)


def test_a_replay_sees_the_recorded_version_and_new_epochs_the_current_one(place: Workspace) -> None:
    place.write(PIPELINE)
    write_names(place, "old")
    killed = place.run(environment={VARIABLE: "before-commit:b"}, EPOCH__ROWS=10)
    assert killed.code == -signal.SIGKILL, killed.stderr
    assert len(rows_of(place, "a")) == 10
    assert rows_of(place, "b") == []
    write_names(place, "new")
    finished = place.run(EPOCH__ROWS=10).succeeded()
    assert "are gone" not in finished.stderr
    expected = [("old" if id_ < 10 else "new") if id_ % 4 < 3 else None for id_ in range(40)]
    for sink in ("a", "b"):
        assert [row["name"] for row in rows_of(place, sink)] == expected, sink


def test_a_replay_without_the_recorded_version_says_so(place: Workspace) -> None:
    place.write(PIPELINE)
    write_names(place, "old")
    killed = place.run(environment={VARIABLE: "before-commit:b"}, EPOCH__ROWS=10)
    assert killed.code == -signal.SIGKILL, killed.stderr
    write_names(place, "new")
    shutil.rmtree(place.directory / "state.db-lookups")
    finished = place.run(EPOCH__ROWS=10).succeeded()
    assert "lookup names: epoch 1 is replayed with the current rows" in finished.stderr
    assert {row["name"] for row in rows_of(place, "b")} == {"new", None}
