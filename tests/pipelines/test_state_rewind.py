"""A database, or the state, that has lost its last commits: the run says so, and `state rewind` finds a way back."""

from __future__ import annotations

import shutil

import pytest

from support.harness import Workspace
from support.postgres_server import Database, PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]

PIPELINE = """\
sources: {{numbers: {{type: generator, rows: {rows}, primary_key: id, columns: {{id: id}}}}}}
sinks:
  out: {{type: postgres, from: numbers, schema: public, table: numbers}}
  copy: {{type: postgres, from: numbers, schema: elsewhere, table: numbers}}
  files: {{type: file, from: numbers, path: files, format: json}}
"""


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def _run(place: Workspace, database: Database, rows: int) -> None:
    place.write(PIPELINE.format(rows=rows)).run(**database.settings()).succeeded()


def _fail(place: Workspace, database: Database, rows: int) -> None:
    told = place.write(PIPELINE.format(rows=rows)).run(**database.settings()).failed().stderr
    assert "STATE_MOVED" in told
    assert "`streamling state rewind --to " in told


def _rewind(place: Workspace, database: Database, sink: str) -> str:
    finished = place.run("state", "rewind", "pipeline.yaml", "--to", sink, "--yes", **database.settings())
    return finished.succeeded().stdout


def _counts(place: Workspace, database: Database) -> tuple[int, int, int]:
    counts = [database.rows(f"SELECT count(*) FROM {schema}.numbers")[0][0] for schema in ("public", "elsewhere")]
    assert {row["id"] for row in place.rows("files", "json")} == set(range(counts[0]))
    return counts[0], counts[1], place.count("files", "json")


def test_lost_commits_of_a_target_are_repeated(place: Workspace, database: Database) -> None:
    """The others finish the epoch in which one is found to be behind: they are at 120 then."""
    _run(place, database, 40)
    database.execute("CREATE SCHEMA old; CREATE TABLE old.numbers AS TABLE numbers")
    database.execute("CREATE TABLE old.ledger AS TABLE _streamling_ledger")
    _run(place, database, 100)
    database.execute("TRUNCATE numbers, _streamling_ledger; INSERT INTO numbers TABLE old.numbers")
    database.execute("INSERT INTO _streamling_ledger TABLE old.ledger")
    _fail(place, database, 120)
    refused = place.run("state", "rewind", "--to", "out", **database.settings())
    assert refused.code == 2 and "confirm with --yes" in refused.stderr
    wrong = place.run("state", "rewind", "--to", "copy", "--yes", **database.settings()).failed()
    assert "the sink 'out' lacks 80 rows of numbers:generator" in wrong.stderr
    told = _rewind(place, database, "out")
    assert 'numbers:generator: 60 rows back, from {"next": 100} to {"next": 40}' in told
    assert "sink 'out': gets the rows after these positions" in told
    assert "sink 'copy': has these rows already (80 rows back); they have the same keys and replace them" in told
    assert "sink 'files': has these rows already (80 rows back); they will be there TWICE" in told
    _run(place, database, 120)
    assert _counts(place, database) == (120, 120, 200)
    assert "nothing to rewind" in _rewind(place, database, "out")


def test_a_state_that_has_lost_commits_continues_after_what_the_targets_have(
    place: Workspace, database: Database
) -> None:
    _run(place, database, 40)
    state = next(place.directory.glob("*.db"))
    shutil.copy(state, place.directory / "older")
    _run(place, database, 100)
    for file in place.directory.glob("*.db*"):
        file.unlink()
    (place.directory / "older").rename(state)
    _fail(place, database, 120)
    told = _rewind(place, database, "files")
    assert 'numbers:generator: 60 rows forward, from {"next": 40} to {"next": 100}' in told
    assert "sink 'out': its ledger agrees, nothing changes" in told
    _run(place, database, 120)
    assert _counts(place, database) == (120, 120, 120)
